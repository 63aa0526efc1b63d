"""Composition of all trainings that released something about the same private examples.

A row's composition covers its trainings, those of its searches, and replaced ones. Git keeps the
results of replaced trainings, so their privacy loss still counts.

The privacy budget of a private data set is the epsilon of all trainings on it in the laboratory. It is
computed from the records each time. No ledger stores it, because each new row would change the ledgers of all
other rows.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, repeat
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from dprepro.accountants.records import up
from dprepro.errors import UserError
from dprepro.pipeline.params import Settings
from dprepro.pipeline.params.own import OWN
from dprepro.pipeline.results import records
from dprepro.pipeline.results.schema import (
    Composition,
    Provenance,
    RowTrainings,
    TrainingRecord,
    TrainingSpent,
    unit_of,
)

if TYPE_CHECKING:
    from dprepro.accountants.bounds import Spending


class Trainings(NamedTuple):
    """Spending of trainings on the same private examples; None stands for a training without a bound."""

    own: list["Spending | None"]
    searched: list["Spending | None"]  # candidates of searches
    replaced: list["Spending | None"]  # trainings and candidates with replaced results


def row_composition(run: RowTrainings, search: str | None, root: Path = Path()) -> Composition | None:
    """Composition of a row's private trainings, searches and replaced trainings.

    The searches are the row's own ``search`` and every search whose record names the row. The result is None
    if no training has a bound, or if only one training has a bound and no replaced training lacks one.
    """
    trainings = trainings_of([run], records.row_searches(run.row, search, root), root)
    composition = composed(trainings)
    if composition is None or not composition.trainings:
        return None
    return composition if composition.total > 1 or None in trainings.replaced else None


def trainings_of(runs: Iterable[RowTrainings], searches: Iterable[str], root: Path = Path()) -> Trainings:
    """Spending of each training, candidate and replaced training of rows and of searches, by their names.

    A search without a record counts as one training without a bound.

    Raises:
        UserError: a file is no record of a search.
    """
    trainings = Trainings([], [], [])
    for run in runs:
        trainings.own.extend(_composable(training.spent) for training in run.trainings)
        trainings.replaced.extend(map(_composable, run.replaced_spent()))
    for search in searches:
        record = records.read_search(search, root)
        if record is None:
            trainings.searched.append(None)
        else:
            trainings.searched.extend(map(_composable, record.spent()))
            for known in record.replaced:
                trainings.replaced.extend(repeat(_composable(known.spent), known.trainings))
    return trainings


def composed(trainings: Trainings) -> Composition | None:
    """Composition of the trainings that have a bound; None if none has.

    `Composition.left_out` counts the trainings without a bound: with seeded noise, without privacy, or with
    mixed examples; and candidates without a recorded privacy loss. A search without a record counts as one
    such training, and so does a training whose unit is smaller than the largest one, a person's examples.
    """
    from dprepro.accountants.bounds import composed_epsilon  # dp-accounting and SciPy take a second

    group = max(filter(None, map(_group, chain(*trainings))), default=None)
    own, searched, replaced = (
        [training for training in part if training is not None and _group(training) == group]
        for part in trainings
    )
    if not (all_bounded := [*own, *searched, *replaced]):
        return None
    epsilon, delta, relation, accountant = composed_epsilon(all_bounded)
    return Composition(
        epsilon=up(epsilon),
        delta=delta,
        unit=unit_of(group),
        neighbouring=relation,
        by=accountant,
        trainings=len(own),
        searched=len(searched),
        replaced=len(replaced),
        left_out=sum(map(len, trainings)) - len(all_bounded),
    )


def _group(training: "Spending | None") -> int | None:
    """Largest number of a person's examples; None: an example is the unit, or there is no bound."""
    return training[0].group if isinstance(training, tuple) else None


def _composable(spent: TrainingSpent | None) -> "Spending | None":
    """Spending of a training in the form for composition; None without a bound."""
    if spent is None:
        return None
    spending = spent.spending
    return spending if isinstance(spending, float) else (spending, spent.steps, spent.delta)


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


def data_budgets(settings: Settings) -> list[DataBudget]:
    """Budgets of the laboratory's own data sets that have recorded trainings, sorted by name.

    All recorded runs and searches count, even without an entry in params.yaml. Data sets of the catalogue are
    public and have no budget. Splits and derived forms of the same files count as one data set. An entry that
    was renamed since is recognised if one training under each name used equal arrays.

    Raises:
        UserError: a record is damaged.
    """
    rows: dict[str, list[str]] = {}
    searches: dict[str, list[str]] = {}
    arrays: dict[str, set[str]] = {}  # digests of the training inputs, by data set

    def count(names: dict[str, list[str]], name: str, read: str, origins: Sequence[Provenance]) -> None:
        """Add the record ``name`` to the data sets that its trainings read."""
        for data in _own_sets(settings, read, origins):
            names.setdefault(data, [])
            if name not in names[data]:
                names[data].append(name)
            trained_on = (origin.data.get("train.inputs") for origin in origins)
            arrays.setdefault(data, set()).update(filter(None, trained_on))

    for path in sorted(records.TRAININGS.glob("*.jsonl")):
        if run := records.read_run(path.stem):
            count(rows, path.stem, run.data, run.origins)
            for each in run.replaced:
                if isinstance(each, TrainingRecord):
                    count(rows, path.stem, each.data, [each.origin])
    for record in records.search_records():
        row = settings.rows.get(record.row)
        count(searches, record.name, row.data if row else "", [record.provenance])
    for gone in sorted(arrays.keys() - settings.own.keys()):
        # an entry that has another name now
        renamed = next((each for each in settings.own if arrays.get(each, set()) & arrays[gone]), None)
        for kept in (rows, searches):
            if renamed is not None and gone in kept:
                kept[renamed] = sorted({*kept.get(renamed, []), *kept.pop(gone)})
    linked = {row.search for row in settings.rows.values() if row.search}
    return [
        _budget(data, rows.get(data, []), searches.get(data, []), linked)
        for data in sorted(rows.keys() | searches.keys())
    ]


def refuse_trained(row: str, settings: Settings) -> None:
    """Make sure that nothing of a row was trained: neither itself nor a search or an attacked model of it.

    Raises:
        UserError: a training left a record or a checkpoint.
    """
    searches = {*records.searches_of().get(row, ())}
    searches |= {name for name, search in settings.searches.items() if search.row == row}
    left = [records.run_path(row), records.audit_path(row, final_models=True), records.CHECKPOINTS / row]
    for name in sorted(searches):
        left += [records.search_path(name), *records.search_checkpoints(name).glob("*")]
    if found := next((path for path in left if path.exists()), None):
        raise UserError(f"rows.{row}: was trained: {found}; allowed: entries without trainings")


def refuse_trained_on(name: str, settings: Settings) -> None:
    """Make sure that nothing was trained on the own data set ``name``.

    Raises:
        UserError: there is a record of such a training, also of a row or search that is no longer declared.
    """
    for key, row in settings.rows.items():
        split = settings.split(row.data)
        if name in (split.raw, split.public.raw):
            refuse_trained(key, settings)
    for budget in data_budgets(settings):
        if budget.data == name:
            trained = [*budget.rows, *budget.searches][0]
            raise UserError(f"own.{name}: {trained} was trained on it; allowed: data without trainings")


def privacy_budget(data: str, settings: Settings) -> DataBudget | None:
    """Budget of the own data set of prepared ``data``; None for public data, or without recorded training."""
    if not (sets := set(_own_sets(settings, data, []))):
        return None
    return next((budget for budget in data_budgets(settings) if budget.data in sets), None)


def _budget(data: str, rows: list[str], searches: list[str], linked: set[str]) -> DataBudget:
    trainings = trainings_of(map(records.require_run, rows), searches)
    unlinked = tuple(search for search in searches if search not in linked)
    together = composed(trainings)
    # with trainings whose unit is smaller than a person's examples
    left_out = sum(map(len, trainings)) if together is None else together.left_out
    noisy = [training for part in trainings for training in part if isinstance(training, tuple)]
    examples = frozenset(spending.examples for spending, *_ in noisy)
    return DataBudget(data, tuple(rows), tuple(searches), unlinked, together, left_out, examples)


def _own_sets(settings: Settings, data: str, origins: Sequence[Provenance]) -> Iterator[str]:
    """Names of own data sets that a training has read, without repetition.

    ``data`` is its prepared data set, '' if unknown. The editions of its ``origins`` are needed because the
    entries of params.yaml may have changed since the training.
    """
    raws = {raw for origin in origins for raw, edition in origin.edition.items() if edition == OWN}
    if data in {**settings.data, **settings.derived}:
        split, declared = settings.split(data), settings.data_digest(data)
        # with another declaration, what is public now may have been private
        if all(origin.declared in (None, declared) for origin in origins):
            raws -= {split.public.raw}
        raws |= {split.raw}
    # an entry may be gone from params.yaml
    for name in sorted({settings.raw_set(raw) if raw in settings.raw else raw for raw in raws}):
        if name in settings.own or name not in settings.raw:
            yield name
