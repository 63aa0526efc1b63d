"""Composition of all trainings that released something about the same private examples.

A row's composition covers its trainings, those of its searches, and replaced ones. Git keeps the
results of replaced trainings, so their privacy loss still counts. `pipeline.ledgers.data_budget` composes the
trainings of all rows and searches on a data set.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, repeat
from pathlib import Path
from typing import NamedTuple

from dprepro.accountants.bounds import Spending, composed_epsilon
from dprepro.accountants.records import up
from dprepro.pipeline.results.records import read_search, row_searches
from dprepro.pipeline.results.schema import Composition, Replaced, RowTrainings, TrainingSpent, unit_of


class Trainings(NamedTuple):
    """Spending of trainings on the same private examples; None stands for a training without a bound."""

    own: list[Spending | None]
    searched: list[Spending | None]  # candidates of searches
    replaced: list[Spending | None]  # trainings and candidates with replaced results


def row_composition(run: RowTrainings, search: str | None, root: Path = Path()) -> Composition | None:
    """Composition of a row's private trainings, searches and replaced trainings.

    The searches are the row's own search and every search whose record names the row.

    Args:
        run: the row's recorded trainings.
        search: name of the row's search.
        root: folder of params.yaml.

    Returns:
        The composition; None if no training has a bound, or if only one training has a bound and no replaced
        training lacks one.
    """
    trainings = trainings_of([run], row_searches(run.row, search, root), root)
    composition = composed(trainings)
    if composition is None or not composition.trainings:
        return None
    return composition if composition.total > 1 or None in trainings.replaced else None


def trainings_of(runs: Iterable[RowTrainings], searches: Iterable[str], root: Path) -> Trainings:
    """Spending of rows' recorded trainings and of searches.

    A search without a record counts as one training without a bound.

    Args:
        runs: recorded trainings of rows.
        searches: names of searches.
        root: folder of params.yaml.

    Returns:
        Spending of each training, candidate and replaced training; None: without a bound.

    Raises:
        UserError: a file is no record of a search.
    """
    trainings = Trainings([], [], [])
    for run in runs:
        trainings.own.extend(_composable(training.spent) for training in run.trainings)
        trainings.replaced.extend(map(_composable, run.replaced_spent()))
    for search in searches:
        record = read_search(search, root)
        if record is None:
            trainings.searched.append(None)
        else:
            trainings.searched.extend(map(_composable, record.spent()))
            trainings.replaced.extend(_repeated(record.replaced))
    return trainings


def composed(trainings: Trainings) -> Composition | None:
    """Composition of the trainings that have a bound.

    `Composition.left_out` counts the trainings without a bound: with seeded noise, without privacy, or with
    mixed examples; and candidates without a recorded privacy loss. A search without a record counts as one
    such training, and so does a training whose unit is smaller than the largest one, a person's examples.

    Args:
        trainings: trainings of a row and its searches.

    Returns:
        The composition; None if no training has a bound.
    """
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


def _group(training: Spending | None) -> int | None:
    """Largest number of a person's examples; None: an example is the unit, or there is no bound."""
    return training[0].group if isinstance(training, tuple) else None


def _composable(spent: TrainingSpent | None) -> Spending | None:
    """Spending of a training in the form for composition; None without a bound."""
    if spent is None:
        return None
    spending = spent.spending
    return spending if isinstance(spending, float) else (spending, spent.steps, spent.delta)


def _repeated(replaced: Sequence[Replaced]) -> Iterator[Spending | None]:
    """Spending of each replaced training."""
    for known in replaced:
        yield from repeat(_composable(known.spent), known.trainings)
