"""Composition of all trainings that released something about the same private examples.

A row's composition covers its replicas, the trainings of its searches, and replaced trainings. Git keeps the
results of replaced trainings, so their privacy loss still counts. `pipeline.ledgers.data_budget` composes the
trainings of all rows and searches on a data set.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from math import fsum
from pathlib import Path
from typing import NamedTuple

from dprepro.pipeline.ledgers.accountants import library
from dprepro.pipeline.ledgers.ledger import smallest_bound
from dprepro.pipeline.ledgers.precision import up
from dprepro.pipeline.results.records import read_search, row_searches
from dprepro.pipeline.results.schema import Composition, Replaced, Run, TrainingSpent
from dprepro.privacy.sampled_gaussian import NeighboringRelation, SampledGaussian
from dprepro.privacy.subsampling import composed_losses

BASIC = "the sum of each one's bound at its share of delta"
# largest epsilon of a training whose losses are composed on a grid
LARGEST_GRID = 50.0
INTERVAL = 1e-3

# spending of a training: mechanism, steps and delta, or the pure epsilon of a single release
Spent = tuple[SampledGaussian, int, float] | float


class Trainings(NamedTuple):
    """Spending of trainings on the same private examples; None stands for a training without a bound."""

    replicas: list[Spent | None]
    searched: list[Spent | None]  # candidates of searches
    replaced: list[Spent | None]  # replicas and candidates with replaced results


def row_composition(run: Run, search: str | None, root: Path = Path()) -> Composition | None:
    """Composition of a row's private replicas, searches and replaced trainings.

    The searches are the row's own search and every search whose record names the row.

    Args:
        run: the row's recorded trainings.
        search: name of the row's search.
        root: folder of params.yaml.

    Returns:
        The composition; None if no replica has a bound, or if only one training has a bound and no replaced
        training lacks one.
    """
    trainings = trainings_of([run], row_searches(run.row, search, root), root)
    composition = composed(trainings)
    if composition is None or not composition.trainings:
        return None
    return composition if composition.total > 1 or None in trainings.replaced else None


def trainings_of(runs: Iterable[Run], searches: Iterable[str], root: Path) -> Trainings:
    """Spending of rows' recorded trainings and of searches.

    A search without a record counts as one training without a bound.

    Args:
        runs: recorded trainings of rows.
        searches: names of searches.
        root: folder of params.yaml.

    Returns:
        Spending of each replica, candidate and replaced training; None for a training without a bound.

    Raises:
        UserError: a file is no record of a search.
    """
    trainings = Trainings([], [], [])
    for run in runs:
        trainings.replicas.extend(_composable(run.spent(training)) for training in run.replicas)
        trainings.replaced.extend(_repeated(run.replaced))
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
    such training.

    Args:
        trainings: trainings of a row and its searches.

    Returns:
        The composition; None if no training has a bound.
    """
    replicas, searched, replaced = (
        [training for training in part if training is not None] for part in trainings
    )
    if not (all_bounded := [*replicas, *searched, *replaced]):
        return None
    epsilon, delta, relation, accountant = composed_epsilon(all_bounded)
    return Composition(
        epsilon=up(epsilon),
        delta=delta,
        neighbouring=relation,
        by=accountant,
        trainings=len(replicas),
        searched=len(searched),
        replaced=len(replaced),
        left_out=sum(map(len, trainings)) - len(all_bounded),
    )


def composed_epsilon(trainings: Sequence[Spent]) -> tuple[float, float, NeighboringRelation, str]:
    """Upper bound on epsilon of several trainings together.

    Delta is the smallest delta of a training. If neighbours replace an example in the accounting of one
    training, they do so for all (`SampledGaussian.replacing`). For trainings on noisy data they always do.

    Args:
        trainings: spending of each training.

    Returns:
        Epsilon, delta, the neighbouring relation, and the method of the bound.
    """
    pure = [training for training in trainings if isinstance(training, float)]
    noisy = [training for training in trainings if isinstance(training, tuple)]
    relation = NeighboringRelation.ADD_OR_REMOVE_ONE
    if pure or any(spending.neighbouring is not relation for spending, *_ in noisy):
        relation = NeighboringRelation.REPLACE_ONE
        noisy = [(spending.replacing(), steps, delta) for spending, steps, delta in noisy]
    delta = min((training[2] for training in noisy), default=0.0)
    epsilon, accountant = _bound(Counter((spending, steps) for spending, steps, _ in noisy), delta)
    return epsilon + fsum(pure), delta, relation, accountant


def _bound(trainings: Counter[tuple[SampledGaussian, int]], delta: float) -> tuple[float, str]:
    """Upper bound on the composed epsilon at ``delta``, and the method of the bound."""
    if not trainings:
        return 0.0, BASIC
    epsilons = {training: smallest_bound(*training, delta) for training in trainings}
    if max(epsilons.values()) > LARGEST_GRID or any(
        training.sampling in ("shuffled", "allocation") for training, _ in trainings
    ):
        return _basic(trainings, delta), BASIC
    (first, number), *remaining = trainings.items()
    losses = composed_losses(first[0].repeated(number), number * first[1], INTERVAL)
    for training, number in remaining:
        losses = losses.compose(composed_losses(training[0].repeated(number), number * training[1], INTERVAL))
    grid_epsilon, accountant = losses.epsilon(delta), f"pld ({library('dp-accounting')})"
    # The basic bound takes long to compute. It is at least the sum of epsilons at the whole delta.
    if grid_epsilon < fsum(number * epsilons[training] for training, number in trainings.items()):
        return grid_epsilon, accountant
    basic_epsilon = _basic(trainings, delta)
    return (grid_epsilon, accountant) if grid_epsilon < basic_epsilon else (basic_epsilon, BASIC)


def _basic(trainings: Counter[tuple[SampledGaussian, int]], delta: float) -> float:
    """Sum of the trainings' epsilons, each at its share of ``delta``."""
    share = delta / trainings.total()
    return fsum(number * smallest_bound(*training, share) for training, number in trainings.items())


def _composable(spent: TrainingSpent | None) -> Spent | None:
    """Spending of a training in the form for composition; None without a bound."""
    if spent is None:
        return None
    spending = spent.spending
    return spending if isinstance(spending, float) else (spending, spent.steps, spent.delta)


def _repeated(replaced: Sequence[Replaced]) -> Iterator[Spent | None]:
    """Spending of each replaced training."""
    for known in replaced:
        yield from repeat(_composable(known.spent), known.trainings)
