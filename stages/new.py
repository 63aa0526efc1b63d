"""`dprepro new data`, `row` and `level`: an entry for params.yaml, checked before it is written."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from dprepro.pipeline.params import Data, OwnFiles, Settings

new = typer.Typer(no_args_is_help=True, help="Add your own data, a row or a level to params.yaml.")
Name = Annotated[str, typer.Argument(help="Name of the new entry: small letters, digits and hyphens.")]


@new.command()
def data(
    name: Name,
    npz: Annotated[str | None, typer.Option(help="An npz file with arrays of inputs and labels.")] = None,
    images: Annotated[str | None, typer.Option(help="A folder with one folder of images per class.")] = None,
    texts: Annotated[str | None, typer.Option(help="A CSV file with a text and its class per line.")] = None,
    table: Annotated[
        str | None, typer.Option(help="A CSV or Parquet file with one example per line.")
    ] = None,
    label: Annotated[
        str | None, typer.Option(help="texts, table: name of the column of classes.", show_default="label")
    ] = None,
    size: Annotated[
        int | None, typer.Option(min=1, help="images: crop and scale them to this width and height.")
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(
            help="texts, table: column that names the person of a line. ε then protects people, of whom the "
            "first line is kept, or as many as `unit` of --schema says."
        ),
    ] = None,
    schema: Annotated[
        Path | None,
        typer.Option(
            help="A YAML file with further keys of the declaration. A table needs one: without it, the "
            "command only writes a template. A public table in its place gives the template its ranges."
        ),
    ] = None,
) -> None:
    """Declare your own files in params.yaml and prepare splits and a manifest.

    The files are added to .gitignore before any is read. No example becomes public without `public` in the
    schema. The command replaces an earlier declaration of this name if nothing was trained on it.
    """
    from dprepro.errors import UserError
    from dprepro.pipeline.data.fetch import fetch
    from dprepro.pipeline.data.own.describe import describe
    from dprepro.pipeline.data.own.private import placing, protected
    from dprepro.pipeline.data.own.schema import read_schema, write_template
    from dprepro.pipeline.data.own.tables import FORMATS
    from dprepro.pipeline.data.prepare import prepare
    from dprepro.pipeline.data.prepared import PREPARED
    from dprepro.pipeline.ledgers.composition import refuse_trained_on
    from dprepro.pipeline.params import PARAMS, load
    from dprepro.pipeline.params.adding import Adding

    paths = {"npz": npz, "images": images, "texts": texts, "table": table}
    given = {kind: path for kind, path in paths.items() if path}
    if len(given) != 1:
        raise UserError(f"{', '.join(f'--{kind}' for kind in paths)}; needed: one of them")
    ((kind, path),) = given.items()
    for option, value, kinds in (
        ("--label", label, ("texts", "table")),
        ("--group", group, ("texts", "table")),
        ("--size", size, ("images",)),
    ):
        if value is not None and kind not in kinds:
            raise UserError(f"{option}: {value}; allowed with {' and '.join(f'--{kind}' for kind in kinds)}")
    adding = Adding()
    adding.refuse(name, "raw")
    public_table = schema if schema is not None and schema.suffix.lower() in FORMATS else None
    if kind == "table" and (schema is None or public_table):
        protected(path)
        write_template(Path(f"{name}.schema.yaml"), Path(path), label or "label", public_table, group)
        return
    fields: dict[str, Any] = {} if schema is None else read_schema(schema)
    if label is not None:
        fields["label"] = label
    if group is not None:
        unit = fields.setdefault("unit", {"at_most": 1})
        if isinstance(unit, dict):
            unit["column"] = group
    if size is not None:
        fields |= {"resize": True, "shape": (1, size, size)}
    with placing(name, path) as fields["path"]:
        own, split = describe(name, kind, fields)
        entries = {"own": _entry(own), "data": _entry(split)}
        if is_other := any(adding.differs(section, name, text) for section, text in entries.items()):
            refuse_trained_on(name, load())
        for section, text in entries.items():
            if is_other:
                adding.remove(section, name)
            adding.entry(section, name, text)
        settings = adding.checked()
        fetched = fetch(name, settings)
        splits = prepare(name, settings)["counts"]
        adding.write()
    counts = ", ".join(f"{split} {count}" for split, count in splits.items())
    again = " again" if is_other else ""
    print(f"{name}: declared{again} in {PARAMS}; {fetched.folder} and {PREPARED / name}: {counts}")
    if own.unit is not None:
        kept = f"at most {own.unit.at_most} examples"
        print(f"the unit of privacy is a person ({own.unit.column}) with {kept}")
    if not split.public.count:
        print("none is public: methods that need public examples say so (`public` of --schema)")
    elif split.public.raw == name:
        print(f"{split.public.count} of them are public from here on, and nothing protects them")


@new.command()
def row(
    name: Name,
    data: Annotated[
        str, typer.Option(help="A key of `data` in params.yaml.", show_default="[required]")
    ] = "",
    model: Annotated[
        str,
        typer.Option(
            help="A file of pipeline/models/ or your lab/models/, without .py.", show_default="[required]"
        ),
    ] = "",
    method: Annotated[
        str,
        typer.Option(help="A training method, such as dpsgd, or your own.", show_default="[required]"),
    ] = "",
    normalization: Annotated[str, typer.Option(help="none, layer, group, public_bn, ...")] = "none",
    epsilon: Annotated[float | None, typer.Option(help="Epsilon, for methods with this setting.")] = None,
    sigma: Annotated[float | None, typer.Option(help="Noise, for methods with this setting.")] = None,
    batch: Annotated[
        int | None, typer.Option(help="Batch size; the default depends on the number of examples.")
    ] = None,
    epochs: Annotated[float | None, typer.Option(help="Number of passes over the examples.")] = None,
    learning_rate: Annotated[
        float | None, typer.Option(help="Step size. Choose it by a search on validation data.")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Number of training runs at each level.")] = 1,
    network: Annotated[
        Path | None,
        typer.Option(help="YAML file with the key `network`, as for `new data`, of the model `pretrained`."),
    ] = None,
    rank: Annotated[
        int | None, typer.Option(min=1, help="Rank of low-rank adapters. Without it, all layers are trained.")
    ] = None,
    purpose: Annotated[
        str | None, typer.Option(help="Purpose of the model, for its card. Such a row belongs to no paper.")
    ] = None,
) -> None:
    """Declare a row in params.yaml, with suggested values for missing options."""
    from math import prod

    from dprepro.errors import UserError, listed, notice
    from dprepro.pipeline.data.declaration import prepared_here
    from dprepro.pipeline.methods.settings import method_settings
    from dprepro.pipeline.models.model import architectures
    from dprepro.pipeline.params import PAPERS, PARAMS, load
    from dprepro.pipeline.params.adding import Adding
    from dprepro.pipeline.params.documents import flow
    from dprepro.pipeline.params.suggested import settings_for, too_many

    settings: Settings = load()
    adding = Adding()
    adding.refuse(name, "accounts")
    sets = {**settings.data, **settings.derived}
    for option, value, known in (
        *(("data", data, sets), ("model", model, architectures())),
        ("method", method, method_settings()),
    ):
        if value not in known:
            what = f"{value}: not known" if value else "missing"
            raise UserError(f"--{option} {what}; allowed: {listed(sorted(known), 40) or 'none yet'}")
    options = {
        "epsilon": epsilon,
        "sigma": sigma,
        "batch": batch,
        "epochs": epochs,
        "learning_rate": learning_rate,
    }
    given = {key: value for key, value in options.items() if value is not None}
    source = settings.own.get(settings.split(data).raw)
    if source is not None and source.number_range is not None:
        given.setdefault("learning_rate", 0.2)  # squared errors in [0, 1] have small gradients
    values = settings_for(method, settings.split(data).train, given)
    axis = method_settings()[method].axis
    level = {axis: values.pop(axis)}
    place = "paper: mine  # any key; rows of one key share a page\ntable: t1"
    if purpose is not None or not PAPERS.is_dir():
        place = f"purpose: {flow(purpose or '')}  # for the model card"
    about: dict[str, Any] = {"name": model}
    about |= {} if normalization == "none" else {"normalization": normalization}
    about |= {} if rank is None else {"rank": rank}
    if network is not None:
        from dprepro.pipeline.data.own.describe import with_digest
        from dprepro.pipeline.data.own.schema import read_schema

        about["network"] = with_digest(read_schema(network).get("network"))
    adding.entry(
        "rows",
        name,
        f"""\
{place}
label: {flow(f"{model}, {method}")}
data: {flow(data)}
model: {flow(about)}
method: {method}
seeds: {seeds}
reproducible: false  # true seeds the noise: numbers repeat, and nothing is private
# where a search may begin; docs/own-data.md says how to choose them on validation data
settings: {flow(values)}
levels: [{flow(level)}]  # one entry for each value to compare
""",
    )
    checked = adding.checked()
    if (described := prepared_here(data, checked)) is not None:
        from dprepro.pipeline.models.networks import build_net

        declared = checked.rows[name]
        shape = declared.resolved[0].input_shape(described.input_shape)
        # refuses a model that can't take the data
        net = build_net(declared.model, shape, described.classes)
        trained = sum(each.numel() for each in net.parameters() if each.requires_grad)
        examples = settings.split(data).train
        if epsilon is not None and too_many(trained, examples, epsilon):
            fewer = (prod(shape) + 1) * described.classes  # of logistic regression
            # numbers of words are no sizes, so logistic regression takes none
            takes = (text := checked.data[data].text) is None or text.vectors is not None
            other = "; `--model logistic` has fewer" if takes and fewer < trained else ""
            notice(
                f"{model}: {trained:,} weights may be too many for {examples:,} examples at epsilon "
                f"{epsilon:g}, and learn nothing{other}"
            )
    adding.write()
    print(f"{name}: declared in {PARAMS}; train it with `dvc repro evaluate@{name} ledger@{name}`")


@new.command()
def level(
    row: Annotated[str, typer.Argument(help="A key of `rows` in params.yaml.")],
    epsilon: Annotated[float | None, typer.Option(help="New level of a row with levels of epsilon.")] = None,
    sigma: Annotated[float | None, typer.Option(help="New level of a row with levels of sigma.")] = None,
) -> None:
    """Add a level to a row in params.yaml. `dprepro repro ROW` then trains it and keeps valid results."""
    from dprepro.errors import UserError
    from dprepro.pipeline.params import PARAMS, load
    from dprepro.pipeline.params.adding import Adding

    declared = load().row(row)
    axis = declared.axis or declared.own_settings.axis
    given = {name: value for name, value in (("epsilon", epsilon), ("sigma", sigma)) if value is not None}
    if axis not in ("epsilon", "sigma"):
        raise UserError(
            f"rows.{row}: its levels differ in {axis!r}; allowed: rows of epsilon or sigma; "
            f"write others into {PARAMS}"
        )
    if [*given] != [axis]:
        raise UserError(f"rows.{row}: its levels differ in {axis!r}; needed: --{axis}, and only it")
    if declared.plan is not None:
        raise UserError(
            f"rows.{row}: has plan {declared.plan!r}; a change would end it; allowed: another row"
        )
    adding = Adding()
    adding.level(row, given)
    adding.checked()
    adding.write()
    print(f"{row}: has the level {axis}={given[axis]:g}; train it with `dprepro repro {row}`")


def _entry(declared: "OwnFiles | Data") -> str:
    """Lines of YAML with the declaration's fields that differ from their defaults."""
    from dprepro.pipeline.params.documents import flow

    fields = declared.model_dump(mode="json", exclude_defaults=True)
    lines = []
    for key, value in fields.items():
        if key == "columns":  # of a table
            lines += [f"{key}:", *(f"  {flow(name)}: {flow(column)}" for name, column in value.items())]
        else:
            lines.append(f"{key}: {flow(value)}")
    return "\n".join(lines)
