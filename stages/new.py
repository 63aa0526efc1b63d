"""`dprepro new data`, `row` and `level`: an entry for params.yaml, checked before it is written."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from dprepro.pipeline.params import Data, OwnFiles, Settings

new = typer.Typer(no_args_is_help=True, help="Add your own data, a row or a level to params.yaml.")
# kinds of files for each option of `new data`
OF_KINDS: dict[str, tuple[str, ...]] = dict.fromkeys(("inputs", "labels", "clip"), ("npz",))
OF_KINDS |= {"range": ("npz", "table"), "size": ("images",), "text": ("texts",), "label": ("texts", "table")}
OF_KINDS |= dict.fromkeys(("target", "schema", "like"), ("table",))
# options of a public network, with their keys in params.yaml
OF_NETWORK = {
    "network": "architecture",
    "weights": "weights",
    "weights-source": "source",
    "weights-licence": "licence",
    "trained-on": "trained_on",
    "network-size": "size",
}
OF_KINDS |= dict.fromkeys(("group", "at-most"), ("texts", "table"))
OF_KINDS |= dict.fromkeys(OF_NETWORK, ("images", "npz"))
Name = Annotated[str, typer.Argument(help="Name of the new entry: small letters, digits and hyphens.")]
Network = Annotated[
    str | None,
    typer.Option(
        help="Public network of torchvision for images. `new data` stores features, not the images."
    ),
]
Weights = Annotated[
    str | None, typer.Option(help="File of network weights in this folder: safetensors or state dict.")
]
WeightsSource = Annotated[str | None, typer.Option(help="Source of the weights.")]
WeightsLicence = Annotated[str | None, typer.Option(help="Licence of the weights.")]
TrainedOn = Annotated[str | None, typer.Option(help="Training data of the network; they count as public.")]
NetworkSize = Annotated[
    int | None, typer.Option(min=16, help="Width and height of scaled images, in pixels.", show_default="224")
]


@new.command()
def data(
    name: Name,
    npz: Annotated[str | None, typer.Option(help="An npz file with arrays of inputs and labels.")] = None,
    images: Annotated[str | None, typer.Option(help="A folder with one folder of images per class.")] = None,
    texts: Annotated[str | None, typer.Option(help="A CSV file with a text and its class per line.")] = None,
    table: Annotated[
        str | None, typer.Option(help="A CSV or Parquet file with one example per line.")
    ] = None,
    csv: Annotated[str | None, typer.Option(hidden=True)] = None,
    test: Annotated[
        int | None,
        typer.Option(min=1, help="Test examples, if the files have no test part; default: a sixth."),
    ] = None,
    inputs: Annotated[
        str | None, typer.Option(help="npz: name of the array of inputs.", show_default="inputs")
    ] = None,
    labels: Annotated[
        str | None, typer.Option(help="npz: name of the array of labels.", show_default="labels")
    ] = None,
    public: Annotated[
        int | None,
        typer.Option(
            min=0, help="Number of examples that become public, for methods that need public examples."
        ),
    ] = None,
    public_from: Annotated[
        str | None,
        typer.Option(help="Source of the public examples: a key of `raw` or `own`; default: these files."),
    ] = None,
    span: Annotated[
        tuple[float, float] | None,
        typer.Option(
            "--range",
            help="npz of floats, or --target: lower and upper bound of all values. Don't compute them from "
            "the data.",
        ),
    ] = None,
    clip: Annotated[bool, typer.Option("--clip", help="npz of floats: clip values to --range.")] = False,
    size: Annotated[
        int | None, typer.Option(min=1, help="images: crop and scale them to this width and height.")
    ] = None,
    text: Annotated[
        str | None, typer.Option(help="texts: name of the column of texts.", show_default="text")
    ] = None,
    label: Annotated[
        str | None, typer.Option(help="texts, table: name of the column of classes.", show_default="label")
    ] = None,
    target: Annotated[
        str | None, typer.Option(help="table: name of a numeric column to predict; needs --range.")
    ] = None,
    schema: Annotated[
        Path | None,
        typer.Option(
            help="table: a YAML file of classes and columns. Without it, the command only writes a template."
        ),
    ] = None,
    like: Annotated[
        Path | None,
        typer.Option(help="table: a public table with the same columns; the template gets its ranges."),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(help="texts, table: column that names the person of a line. ε then protects people."),
    ] = None,
    at_most: Annotated[
        int | None,
        typer.Option(min=1, help="--group: lines of a person that are kept. Don't compute it from the data."),
    ] = None,
    network: Network = None,
    weights: Weights = None,
    weights_source: WeightsSource = None,
    weights_licence: WeightsLicence = None,
    trained_on: TrainedOn = None,
    network_size: NetworkSize = None,
) -> None:
    """Declare your own files in params.yaml and prepare splits and a manifest.

    The files are added to .gitignore before any is read. No example becomes public without --public. The
    command replaces an earlier declaration of this name if nothing was trained on it.
    """
    from pydantic import ValidationError

    from dprepro.checking import problem_lines
    from dprepro.errors import UserError
    from dprepro.pipeline.data.fetch import fetch
    from dprepro.pipeline.data.own.describe import PUBLIC, describe
    from dprepro.pipeline.data.own.private import placing, protected
    from dprepro.pipeline.data.own.schema import read_schema
    from dprepro.pipeline.data.prepare import prepare
    from dprepro.pipeline.data.prepared import PREPARED
    from dprepro.pipeline.ledgers.data_budget import refuse_trained_on
    from dprepro.pipeline.params import PARAMS, Public, load
    from dprepro.pipeline.params.adding import Adding
    from dprepro.pipeline.params.own import Unit

    if csv is not None:
        raise UserError("--csv: not known; allowed: --texts for a column of texts, --table for other columns")
    paths = {"npz": npz, "images": images, "texts": texts, "table": table}
    given = {kind: path for kind, path in paths.items() if path}
    if len(given) != 1:
        raise UserError(f"{', '.join(f'--{kind}' for kind in paths)}; needed: one of them")
    ((kind, path),) = given.items()
    options: dict[str, Any] = {"test": test, "inputs": inputs, "labels": labels}
    options |= {"range": span, "clip": clip or None, "size": size, "text": text, "label": label}
    options |= {"schema": schema, "like": like, "target": target, "group": group, "at-most": at_most}
    values = (network, weights, weights_source, weights_licence, trained_on, network_size)
    options |= dict(zip(OF_NETWORK, values, strict=True))
    fields = {key: value for key, value in options.items() if value is not None}
    if strange := next((key for key in fields if kind not in OF_KINDS.get(key, (kind,))), None):
        kinds = " or ".join(f"--{each}" for each in OF_KINDS[strange])
        raise UserError(f"--{strange}: not allowed with --{kind}; allowed with {kinds}")
    if (group is None) != (at_most is None) or (group and public and not public_from):
        raise UserError("--group: goes with --at-most, and not with --public of these files")
    adding = Adding()
    adding.refuse(name, "raw")
    if kind == "table":
        if (target is None) != (span is None) or (target and label):
            raise UserError("--target: goes with --range, and in place of --label")
        fields["label"] = label or fields.pop("target", "label")
        if schema is None:
            protected(path)
            _write_template(name, Path(path), fields["label"], like, bool(target), group)
            return
        if like is not None:
            raise UserError("--like: not allowed with --schema; allowed for the template")
        fields |= read_schema(fields.pop("schema"), target)
        if target:
            fields["target"] = fields.pop("range")
    if group is not None:
        try:
            fields["unit"] = Unit(column=fields.pop("group"), at_most=fields.pop("at-most"))
        except ValidationError as problem:
            lines = (f"own.{name}.unit.{line}" for line in problem_lines(problem))
            raise UserError("\n".join(lines)) from problem
    if weights_of := {key: fields.pop(key) for key in OF_NETWORK if key in fields}:
        from dprepro.pipeline.data.own.trunk import width

        fields["network"] = _weights(weights_of) | {"features": width(weights_of["network"])}
        if kind == "images":
            fields.setdefault("size", weights_of.get("network-size", 224))
    if side := fields.pop("size", None):
        fields |= {"resize": True, "shape": (None, side, side)}
    if public_from == name:
        raise UserError(f"--public-from {name}: is the new data set; allowed: another one, or --public alone")
    unprotected = public if public is not None else PUBLIC if public_from else 0
    with placing(name, path) as fields["path"]:
        own, split = describe(name, kind, fields, public=Public(raw=public_from or name, count=unprotected))
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
        print(f"the unit of privacy is a person ({group}) with at most {at_most} examples")
    if not unprotected:
        print("none is public: methods that need public examples say so (--public, --public-from)")
    elif split.public.raw == name:
        print(f"{unprotected} of them are public from here on, and nothing protects them")


def _weights(given: dict[str, Any]) -> dict[str, Any]:
    """Declaration of public weights from the options of `OF_NETWORK`.

    Raises:
        UserError: an option or the file is missing.
    """
    from dprepro.errors import UserError, reading
    from dprepro.pipeline.files import digest_file

    needed = [key for key in OF_NETWORK if key != "network-size"]
    if lacking := [key for key in needed if key not in given]:
        raise UserError(
            f"--{lacking[0]}: missing; a public network needs {', '.join(f'--{key}' for key in needed)}"
        )
    with reading(path := Path(given["weights"])):
        digest = digest_file(path)
    return {OF_NETWORK[key]: value for key, value in given.items()} | {"digest": digest}


def _write_template(
    name: str, table: Path, label: str, like: Path | None, number: bool, people: str | None
) -> None:
    """Write a template of a schema, and print its path."""
    from dprepro.errors import UserError
    from dprepro.pipeline.data.own.schema import template
    from dprepro.pipeline.files import write_text

    path = Path(f"{name}.schema.yaml")
    if path.exists():
        raise UserError(f"{path}: is there already; use it with --schema {path}, or delete it")
    write_text(path, template(table, label, like, number, people))
    source = f"from the public lines of {like}" if like else "from the names of the columns alone"
    print(f"{path}: written {source}")
    print(f"next: fill it without a look at the private lines, then the same command with --schema {path}")


@new.command()
def row(
    name: Name,
    data: Annotated[str, typer.Option(help="A key of `data` in params.yaml.")],
    model: Annotated[str, typer.Option(help="A file of pipeline/models/ or your lab/models/, without .py.")],
    method: Annotated[str, typer.Option(help="A training method, such as dpsgd, or your own.")],
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
    network: Network = None,
    weights: Weights = None,
    weights_source: WeightsSource = None,
    weights_licence: WeightsLicence = None,
    trained_on: TrainedOn = None,
    network_size: NetworkSize = None,
    rank: Annotated[
        int | None, typer.Option(min=1, help="Rank of low-rank adapters. Without it, all layers are trained.")
    ] = None,
    purpose: Annotated[
        str | None, typer.Option(help="Purpose of the model, for its card. Such a row belongs to no paper.")
    ] = None,
) -> None:
    """Declare a row in params.yaml, with suggested values for missing options."""
    from math import prod

    from dprepro.errors import UserError, notice
    from dprepro.pipeline.data.declaration import prepared_here
    from dprepro.pipeline.methods.settings import method_settings
    from dprepro.pipeline.params import PAPERS, PARAMS, load, pick
    from dprepro.pipeline.params.adding import Adding
    from dprepro.pipeline.params.documents import flow
    from dprepro.pipeline.params.suggested import settings_for, too_many

    settings: Settings = load()
    adding = Adding()
    adding.refuse(name, "accounts")
    pick({**settings.data, **settings.derived}, data, "data set")
    if method not in method_settings():
        raise UserError(f"--method {method}: not known; allowed: {', '.join(method_settings())}")
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
    of_network = (network, weights, weights_source, weights_licence, trained_on, network_size)
    if any(of_network):
        named = zip(OF_NETWORK, of_network, strict=True)
        about["network"] = _weights({key: value for key, value in named if value is not None})
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
        from dprepro.pipeline.methods.registry import build_net

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
    from dprepro.pipeline.params.documents import flow

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
    adding.level(row, flow(given))
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
