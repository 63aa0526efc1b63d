"""The only reader of params.yaml, and checks that its entries fit each other.

YAML is read as version 1.2, as in DVC: ``1e-5`` is a number and ``no`` is a string.
"""

from collections import deque
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from dprepro.checking import problem_lines
from dprepro.errors import UserError, reading, shown
from dprepro.pipeline.extensions import use
from dprepro.pipeline.methods.settings import method_settings
from dprepro.pipeline.models.model import architectures
from dprepro.pipeline.params.documents import read_yaml
from dprepro.pipeline.params.own import OwnFiles, OwnTable
from dprepro.pipeline.params.schema import (
    PLANNED_SEED,
    REPEATED,
    REPEATED_SEED,
    SEARCHED_SEED,
    Relevance,
    Row,
    Start,
)
from dprepro.pipeline.params.settings import PARAMS, Packages, Settings


class _Code(BaseModel):
    """The section `code` of params.yaml, a laboratory's packages, which is needed before other sections."""

    code: Packages = ()


def load(path: Path = PARAMS) -> Settings:
    """Read and check params.yaml.

    Raises:
        UserError: the file is invalid. The message has a line per problem: file, key, value, allowed values.
    """
    return parse(_read(path), path)


def use_code(path: Path = PARAMS) -> None:
    """Register a laboratory's own packages, even if other parts of params.yaml are invalid.

    Raises:
        UserError: the file can't be read, or a package is missing.
    """
    raw = _read(path)
    code = raw.get("code", ()) if isinstance(raw, dict) else ()
    parse({"code": code, "raw": {}, "data": {}, "rows": {}}, path)


def _read(path: Path) -> Any:
    with reading(path, "run this in the folder that holds params.yaml"):
        return read_yaml(path)


def parse(raw: Any, path: Path = PARAMS, complete: bool = True) -> Settings:
    """Check the content of params.yaml. ``complete``: whether to compare its entries with each other.

    Raises:
        UserError: the content is invalid. The message has a line per problem.
    """
    if not isinstance(raw, dict):
        has = "is empty" if raw is None else f"has {shown(raw)}"
        raise UserError(
            f"{path}: {has}; allowed: keys such as raw, data and rows (`dprepro init` writes some)"
        )
    try:
        use(_Code.model_validate(raw).code, path.parent)
        settings = Settings.model_validate(raw)
        if complete:
            check_all(settings)
    except ValidationError as problem:
        raise UserError(
            "\n".join(f"{path}: {line}" for line in problem_lines(problem, Settings))
        ) from problem
    except ValueError as problem:
        raise UserError(f"{path}: {problem}") from problem
    return settings


def check_all(settings: Settings) -> None:
    """Check that entries of params.yaml fit each other.

    Raises:
        ValueError: the first check that fails, as 'key: reason'.
    """
    for name in settings.own:
        if name in settings.catalogued:
            raise ValueError(f"own.{name}: 'raw' has an entry of that name too")
    for name, files in settings.own.items():
        if files.of is not None:
            first = {key: entry for key, entry in settings.raw.items() if not entry.of and key != name}
            _exists(f"own.{name}.of", files.of, first)
    for name, data in settings.data.items():
        for key, raw in (("raw", data.raw), ("public.raw", data.public.raw)):
            _exists(f"data.{name}.{key}", raw, settings.raw)
    _check_public_forms(settings)
    for name, start in settings.starts.items():
        _check_start(settings, name, start)
    for name, relevance in settings.relevances.items():
        _check_relevance(settings, name, relevance)
    for key in settings.plans:
        _check_seeds(settings, key)
    _check_planned_values(settings)
    for key, row in settings.rows.items():
        _check_row(settings, key, row)
    for key, search in settings.searches.items():
        _exists(f"searches.{key}.row", search.row, settings.rows)
        if not settings.split(judged_on := settings.rows[search.row].data).validation:
            raise ValueError(
                f"searches.{key}.row: {judged_on!r} has no validation examples; a search needs some"
            )
        deque(settings.candidates(key), maxlen=0)  # raises if a candidate can't be trained
    for key in settings.accounts:
        if key in settings.rows:
            raise ValueError(f"accounts.{key}: 'rows' has an entry of that name too")


def _check_public_forms(settings: Settings) -> None:
    """Check that public examples are no other form of the private ones, and have features of their kind.

    Contents tell public from private examples, and two forms of one example have different contents.
    """
    for name, data in settings.data.items():
        private, public = data.raw, data.public.raw
        if private == public and data.public.count and settings.group(name) is not None:
            raise ValueError(
                f"data.{name}.public.count: {data.public.count} examples of people whose other examples are "
                "private; allowed with 'unit': 0, or examples of another set"
            )
        kinds = [_kind_of_features(settings.own[raw]) for raw in (private, public) if raw in settings.own]
        if len(kinds) == 2 and None not in kinds and kinds[0] != kinds[1]:
            raise ValueError(
                f"data.{name}.public.raw: {public!r} has other features than {private!r}; "
                "allowed: the same public network, or the same columns in the same order"
            )
        own = {private, public} & settings.own.keys()
        if private != public and own and settings.raw_set(private) == settings.raw_set(public):
            raise ValueError(
                f"data.{name}.public.raw: {public!r} has the examples of {private!r} in another form; "
                f"allowed: {private!r} itself, or other examples"
            )


def _kind_of_features(files: OwnFiles) -> Any:
    """Public network or columns that give the features; None: the files have the inputs themselves."""
    if isinstance(files, OwnTable):
        return list(files.columns.items())
    network = files.public_network
    return network and network.model_dump(exclude={"weights", "source", "licence", "trained_on"})


def _check_seeds(settings: Settings, plan: str) -> None:
    """Check that a plan repeated by ``plan`` exists, and that ``plan``'s seeds are in their own range."""
    repeats = REPEATED in plan
    if repeats:
        _exists(f"plans.{plan}", _first(plan), settings.plans)
    first = REPEATED_SEED if repeats else PLANNED_SEED
    repeated = any(other != plan and _first(other) == plan for other in settings.plans)
    end = REPEATED_SEED if repeated else SEARCHED_SEED
    if first + (seeds := settings.plans[plan].seeds) > end:
        raise ValueError(f"plans.{plan}.seeds: {seeds}; allowed: at most {end - first}")


def _first(plan: str) -> str:
    """Key of the plan that ``plan`` repeats; ``plan`` itself if it repeats none."""
    return plan.partition(REPEATED)[0]


def _check_planned_values(settings: Settings) -> None:
    """Check that a printed value has one plan and one repetition, which differs from the plan only in seeds.

    A variant decides no printed value, so it may have a plan of its own. A row that is `informed` may differ
    in other settings.
    """
    plans: dict[tuple[object, ...], str] = {}
    planned: dict[tuple[object, ...], object] = {}
    repeated: dict[tuple[object, ...], str] = {}
    rows = [(key, row, row.plan) for key, row in settings.rows.items() if row.plan is not None]
    for key, row, plan in sorted(rows, key=lambda each: each[1].repeats):  # repetitions last
        for resolved in row.resolved:
            level, first = row.level(resolved), _first(plan)
            value = (row.paper, row.table, row.line or row.label, row.variant, level)
            if (other := plans.setdefault(value, first)) != first:
                raise ValueError(
                    f"rows.{key}.plan: {plan!r}, but {other!r} has {row.label!r} at {level!r} too; "
                    "allowed: one plan for a value, and its repetition"
                )
            if not row.repeats:
                planned[value] = (row.data, row.model, resolved)
                continue
            if (other := repeated.setdefault(value, key)) != key:
                raise ValueError(
                    f"rows.{key}: repeats {row.label!r} at {level!r}, as rows.{other} does; "
                    "allowed: one repetition of a value"
                )
            if row.informed is None and planned.get(value) != (row.data, row.model, resolved):
                raise ValueError(
                    f"rows.{key}: repeats {level!r} with other settings than its first plan's row; allowed: "
                    "the same but for seeds, or 'informed', which says which test results had been seen"
                )


def _check_start(settings: Settings, name: str, start: Start) -> None:
    """Check that public initial weights come from a row on public data with fresh initial weights."""
    where = f"starts.{name}"
    if name in settings.data:
        raise ValueError(f"{where}: 'data' has an entry of that name too")
    _exists(f"{where}.data", start.data, settings.data)
    _exists(f"{where}.row", start.row, settings.rows)
    before = settings.rows[start.row].data
    if before in settings.starts:
        raise ValueError(f"{where}.row: {start.row!r} starts from public weights itself")
    _exists(f"rows.{start.row}.data", before, settings.data)
    divided = [name for name, defined in architectures().items() if "FEATURES" in defined]
    if start.features and settings.rows[start.row].model.name not in divided:
        raise ValueError(
            f"{where}.features: {start.row!r} trains {settings.rows[start.row].model.name!r}; allowed with "
            f"features: rows of {', '.join(divided)}"
        )
    if start.features:
        _check_unscaled(settings, where, start.row)
    _check_public(settings, where, start)


def _check_relevance(settings: Settings, name: str, relevance: Relevance) -> None:
    """Check the data, the network's row and the number of examples of an entry of ``relevances``."""
    where = f"relevances.{name}"
    if name in settings.data or name in settings.starts:
        raise ValueError(f"{where}: 'data' or 'starts' has an entry of that name too")
    _exists(f"{where}.data", relevance.data, settings.data)
    _exists(f"{where}.row", relevance.row, settings.rows)
    data, before = settings.data[relevance.data], settings.rows[relevance.row].data
    if before in settings.relevances:
        raise ValueError(f"{where}.row: {relevance.row!r} is trained with relevances itself")
    _exists(f"rows.{relevance.row}.data", before, {**settings.data, **settings.starts})
    _check_unscaled(settings, where, relevance.row)
    if data.text is not None or settings.split(before).text is not None:
        raise ValueError(f"{where}: is for images; allowed: data and rows without texts")
    if (relevance.examples or 0) > data.train:
        raise ValueError(f"{where}.examples: {relevance.examples}; allowed: 1 to {data.train}")


def _check_unscaled(settings: Settings, where: str, row: str) -> None:
    """Check that ``row``'s method doesn't scale images; features and relevances need unscaled images."""
    if method_settings()[(method := settings.rows[row].method)].scales_inputs:
        unscaled = [name for name, declared in method_settings().items() if not declared.scales_inputs]
        raise ValueError(
            f"{where}.row: {row!r} is trained by {method!r}, which scales images by its public ones; "
            f"allowed: rows of {', '.join(unscaled)}"
        )


def _check_public(settings: Settings, where: str, joined: Start) -> None:
    """Check that the network's row was not trained on the data set that is private in ``joined``.

    Nor may the row that gave the network its initial weights.
    """
    before, private = settings.rows[joined.row].data, settings.data[joined.data].raw
    start = settings.starts.get(before)
    behind = [settings.rows[start.row].data] if start and start.row in settings.rows else []
    seen = [settings.split(data) for data in (before, *(each for each in behind if each in settings.data))]
    for theirs in (raw for data in seen for raw in (data.raw, data.public.raw)):
        # two entries of 'raw' may be editions of one set
        if settings.raw_set(theirs) == settings.raw_set(private):
            raise ValueError(
                f"{where}.row: {joined.row!r} was trained with {theirs!r}, which is private in "
                f"{joined.data!r}; allowed: rows on other data"
            )


def _check_row(settings: Settings, key: str, row: Row) -> None:
    """Check that a row's data, model, settings and search fit each other."""
    where = f"rows.{key}"
    _exists(f"{where}.data", row.data, {**settings.data, **settings.derived})
    if row.model.trainable != "all" and row.data not in settings.starts:
        raise ValueError(
            f"{where}.model.trainable: {row.model.trainable!r} needs data of 'starts'; "
            f"there are: {', '.join(sorted(settings.starts)) or 'none'}"
        )
    if row.data in settings.starts:
        if settings.has_features(row.data) and row.model.trainable != "linear":
            raise ValueError(
                f"{where}.model.trainable: {row.model.trainable!r}, but of {row.data!r} there are only "
                "features, for linear layers; allowed: 'linear'"
            )
        before = settings.rows[settings.starts[row.data].row].model
        if differing := row.model.differing(before):
            raise ValueError(
                f"{where}.model.{differing}: {getattr(row.model, differing)!r}, but the weights "
                f"of {row.data!r} were trained with {getattr(before, differing)!r}"
            )
    if row.simulates is not None:
        _check_simulation(settings, f"{where}.simulates", row, row.simulates)
    source = settings.own.get(settings.split(row.data).raw)
    numeric = source is not None and source.number_range is not None
    if numeric and row.method != "dpsgd":
        raise ValueError(f"{where}.method: {row.method!r}; allowed for a numeric target: 'dpsgd'")
    circumstances = settings.circumstances(row)
    for level in row.resolved:
        if problem := level.problem(circumstances):
            raise ValueError(f"{where}.{problem}")
    if ignored := row.model.ignored:
        raise ValueError(
            f"{where}.model.{ignored}: {getattr(row.model, ignored)!r} has no effect with normalization "
            f"{row.model.normalization!r}; allowed: {type(row.model).model_fields[ignored].default!r}"
        )
    if row.plan is not None:
        _check_plan(settings, where, row, row.plan)
    if row.search is not None:
        _exists(f"{where}.search", row.search, settings.searches)
        searched = settings.rows.get(settings.searches[row.search].row)
        if searched and settings.without_relevances(searched.data) != settings.without_relevances(row.data):
            raise ValueError(f"{where}.search: {row.search!r} searched on other data, {searched.data!r}")


def _check_plan(settings: Settings, where: str, row: Row, plan: str) -> None:
    """Check the table and training budget of a planned row, and the number of seeds at each level."""
    _exists(f"{where}.plan", plan, settings.plans)
    table, first = f"{row.paper}-{row.table}", _first(plan)
    if first != table and not first.startswith(f"{table}-"):
        raise ValueError(
            f"{where}.plan: {plan!r}; allowed: '{table}', its paper and table, '{table}-PART', or either "
            f"with '{REPEATED}'"
        )
    for count in (row.seeds, *(level["seeds"] for level in row.levels if "seeds" in level)):
        if count != settings.plans[plan].seeds:
            raise ValueError(
                f"{where}.seeds: {count}; allowed: {settings.plans[plan].seeds} at each level, as planned"
            )
    if row.budget == "reduced":
        raise ValueError(f"{where}.budget: 'reduced'; allowed with a plan: 'full', 'own'")


def _check_simulation(settings: Settings, where: str, row: Row, simulated: str) -> None:
    """Check that ``row`` is the row ``simulated`` with batch and noise divided by the same factor."""
    _exists(where, simulated, settings.rows)
    other = settings.rows[simulated]
    if row.method != other.method or not method_settings()[row.method].scalable:
        scalable = " or ".join(
            repr(name) for name, settings_type in method_settings().items() if settings_type.scalable
        )
        raise ValueError(f"{where}: {simulated!r}; only rows of method {scalable} can be scaled")
    if (row.data, row.model) != (other.data, other.model):
        raise ValueError(f"{where}: {simulated!r} has another model or other data")
    for level in row.resolved:
        if not any(level.simulates(of) for of in other.resolved):
            raise ValueError(
                f"{where}: no level of {simulated!r} becomes {row.level(level)!r} when batch and sigma "
                "shrink by one factor"
            )


def _exists(where: str, name: str, table: dict[str, Any]) -> None:
    if name not in table:
        raise ValueError(
            f"{where}: no such entry {name!r}; allowed: {', '.join(sorted(table)) or 'none yet'}"
        )
