"""Privacy budget of a private data set: epsilon of all trainings on it in the laboratory.

The budget is computed from the records each time. No ledger stores it, because each new row would change the
ledgers of all other rows.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from dprepro.errors import UserError
from dprepro.pipeline.params import Settings
from dprepro.pipeline.params.own import OWN
from dprepro.pipeline.results import records
from dprepro.pipeline.results.schema import Composition, Provenance, TrainingRecord


@dataclass(frozen=True)
class DataBudget:
    """Trainings on one private data set, and their composition."""

    data: str  # entry of `own` in params.yaml
    rows: tuple[str, ...]  # rows with recorded runs on these data
    searches: tuple[str, ...]
    unlinked: tuple[str, ...]  # those of `searches` that no row names
    composition: Composition | None  # None: no training has a bound
    left_out: int  # trainings without a bound
    examples: frozenset[int]  # exact or declared numbers of examples of the sampling of trainings


def data_budgets(settings: Settings, root: Path = Path()) -> list[DataBudget]:
    """Budgets of the laboratory's own data sets that have recorded trainings.

    All recorded runs and searches count, even without an entry in params.yaml. Data sets of the catalogue are
    public and have no budget. Splits and derived forms of the same files count as one data set. An entry that
    was renamed since is recognised if one training under each name used equal arrays.

    Args:
        settings: params.yaml.
        root: folder of params.yaml.

    Returns:
        A budget for each data set, sorted by name.

    Raises:
        UserError: a record is damaged.
    """
    rows: dict[str, list[str]] = {}
    searches: dict[str, list[str]] = {}
    arrays: dict[str, set[str]] = {}  # digests of the training inputs, by data set

    def count(
        names: dict[str, list[str]],
        name: str,
        read: str,
        origins: Sequence[Provenance],
        earlier: Iterable[str],
    ) -> None:
        """Add the record ``name`` to the data sets that its trainings, also ``earlier`` ones, read."""
        present = set(_own_sets(settings, read, origins))
        for data in present.union(_names(settings, earlier)):
            names.setdefault(data, [])
            if name not in names[data]:
                names[data].append(name)
            arrays.setdefault(data, set()).update(_trained_on(origins) if data in present else ())

    for path in sorted((root / records.TRAININGS).glob("*.jsonl")):
        if run := records.read_run(path.stem, root):
            count(rows, path.stem, run.data, run.origins, ())
            for each in run.replaced:
                if isinstance(each, TrainingRecord):
                    count(rows, path.stem, each.data, [each.origin], ())
    for record in records.search_records(root):
        row = settings.rows.get(record.row)
        data = row.data if row else ""
        count(searches, record.name, data, [record.provenance], record.replaced_on)
    for gone in sorted(arrays.keys() - settings.own.keys()):
        # an entry that has another name now
        renamed = next((each for each in settings.own if arrays.get(each, set()) & arrays[gone]), None)
        for kept in (rows, searches):
            if renamed is not None and gone in kept:
                kept[renamed] = sorted({*kept.get(renamed, []), *kept.pop(gone)})
    linked = {row.search for row in settings.rows.values() if row.search}
    return [
        _budget(data, rows.get(data, []), searches.get(data, []), linked, root)
        for data in sorted(rows.keys() | searches.keys())
    ]


def refuse_trained(row: str, settings: Settings, root: Path = Path()) -> None:
    """Make sure that nothing of a row was trained: neither itself nor a search or an attacked model of it.

    Raises:
        UserError: a training left a record or a checkpoint.
    """
    searches = {*records.searches_of(root).get(row, ())}
    searches |= {name for name, search in settings.searches.items() if search.row == row}
    left = [records.run_path(row, root), records.audit_path(row, root, final_models=True)]
    left += [records.search_path(name, root) for name in sorted(searches)]
    left.append(root / records.CHECKPOINTS / row)
    for name in sorted(searches):
        left += records.search_checkpoints(name, root).glob("*")
    if found := next((path for path in left if path.exists()), None):
        raise UserError(f"rows.{row}: was trained: {found}; allowed: entries without trainings")


def refuse_trained_on(name: str, settings: Settings, root: Path = Path()) -> None:
    """Make sure that nothing was trained on the own data set ``name``.

    Raises:
        UserError: there is a record of such a training, also of a row or search that is no longer declared.
    """
    for key, row in settings.rows.items():
        split = settings.split(row.data)
        if name in (split.raw, split.public.raw):
            refuse_trained(key, settings, root)
    for budget in data_budgets(settings, root):
        if budget.data == name:
            trained = [*budget.rows, *budget.searches][0]
            raise UserError(f"own.{name}: {trained} was trained on it; allowed: data without trainings")


def _trained_on(origins: Iterable[Provenance]) -> Iterator[str]:
    return (origin.data["train.inputs"] for origin in origins if "train.inputs" in origin.data)


def privacy_budget(data: str, settings: Settings, root: Path = Path()) -> DataBudget | None:
    """Budget of the own data set of prepared ``data``; None for public data, or without recorded training."""
    if not (sets := set(_own_sets(settings, data, []))):
        return None
    return next((budget for budget in data_budgets(settings, root) if budget.data in sets), None)


def _budget(data: str, rows: list[str], searches: list[str], linked: set[str], root: Path) -> DataBudget:
    # imports dp-accounting and SciPy, which takes a second
    from dprepro.pipeline.ledgers.composition import composed, trainings_of

    runs = [run for row in rows if (run := records.read_run(row, root))]
    assert len(runs) == len(rows), "they were just read"  # none is listed whose trainings don't count
    trainings = trainings_of(runs, searches, root)
    unlinked = tuple(search for search in searches if search not in linked)
    together = composed(trainings)
    # with trainings whose unit is smaller than a person's examples
    left_out = sum(map(len, trainings)) if together is None else together.left_out
    noisy = [training for part in trainings for training in part if isinstance(training, tuple)]
    examples = frozenset(spending.examples for spending, *_ in noisy)
    return DataBudget(data, tuple(rows), tuple(searches), unlinked, together, left_out, examples)


def _own_sets(settings: Settings, data: str, origins: Sequence[Provenance]) -> Iterator[str]:
    """Names of own data sets that a training has read.

    Args:
        settings: params.yaml.
        data: prepared data set of the training; '' if unknown.
        origins: the training's provenance. Its editions are needed because the entries of params.yaml may
            have changed since the training.

    Yields:
        Names, without repetition.
    """
    raws = {raw for origin in origins for raw, edition in origin.edition.items() if edition == OWN}
    if data in {**settings.data, **settings.derived}:
        split, declared = settings.split(data), settings.data_digest(data)
        # with another declaration, what is public now may have been private
        if all(origin.declared in (None, declared) for origin in origins):
            raws -= {split.public.raw}
        raws |= {split.raw}
    yield from _names(settings, raws)


def _names(settings: Settings, raws: Iterable[str]) -> Iterator[str]:
    """Names of the own data sets behind entries of params.yaml, which may be gone, without repetition."""
    for name in sorted({settings.raw_set(raw) if raw in settings.raw else raw for raw in raws}):
        if name in settings.own or name not in settings.raw:
            yield name
