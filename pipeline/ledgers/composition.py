"""What all trainings of a row, and of the search that chose its settings, release together.

A table's cell is a mean over seeds, a row has several levels, and a search looks at what each of its
candidates reached: whoever sees them all has seen the same private examples as often.
"""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from math import fsum, isfinite
from pathlib import Path

from dp_accounting import NeighboringRelation

from pipeline.ledgers.accountants import library
from pipeline.ledgers.ledger import bounds_of
from pipeline.ledgers.precision import up
from pipeline.privacy.laplace import Releases
from pipeline.privacy.sampled_gaussian import SampledGaussian
from pipeline.privacy.subsampling import composed_losses
from pipeline.results.records import search_path
from pipeline.results.schema import CandidateSpent, Composition, Run, Trained

BASIC = "the sum of each one's bound at its share of delta"
# up to which the trainings' losses are composed on one grid
LARGEST_GRID = 50.0
INTERVAL = 1e-3

# of one training: mechanism, steps and delta, or a pure epsilon of what was released at once
Spent = tuple[SampledGaussian, int, float] | float


def row_composition(run: Run, search: str | None, root: Path = Path()) -> Composition | None:
    """What a row's private replicas and its search spend in all; None where that is no more than one does.

    Replicas and candidates without a bound are not in it, and are counted as left out: those that were seeded
    or mix examples, that aren't private, candidates of which the search's record doesn't say what they spent,
    and a search whose record isn't there.
    """
    replicas = [
        None if run.origin(training).reproducible else _replica_spending(training)
        for training in run.replicas
    ]
    candidates = list(_candidates(search, root)) if search else []
    private = [training for training in replicas if training is not None]
    searched = [training for training in candidates if training is not None]
    if not private or len(private) + len(searched) < 2:
        return None
    epsilon, delta, relation, accountant = composed_epsilon([*private, *searched])
    return Composition(
        epsilon=up(epsilon),
        delta=delta,
        neighbouring=relation,
        by=accountant,
        trainings=len(private),
        searched=len(searched),
        left_out=len(replicas) - len(private) + len(candidates) - len(searched),
    )


def composed_epsilon(trainings: Sequence[Spent]) -> tuple[float, float, NeighboringRelation, str]:
    """An upper bound on epsilon of all of them, its delta and relation of neighbours, and how it was found.

    Delta is the least of theirs. Where any is accounted for neighbours that replace one example, as noise on
    data always is, all are (`SampledGaussian.replacing`).
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
    """Epsilon at ``delta`` of all trainings, and how it was found."""
    if not trainings:
        return 0.0, BASIC
    epsilons = {training: _least_epsilon(*training, delta) for training in trainings}
    if max(epsilons.values()) > LARGEST_GRID or any(
        training.sampling == "shuffled" for training, _ in trainings
    ):
        return _basic(trainings, delta), BASIC
    (first, number), *remaining = trainings.items()
    losses = composed_losses(first[0].repeated(number), number * first[1], INTERVAL)
    for training, number in remaining:
        losses = losses.compose(composed_losses(training[0].repeated(number), number * training[1], INTERVAL))
    grid_epsilon, accountant = losses.epsilon(delta), f"pld ({library('dp-accounting')})"
    # the basic bound takes long, and is never less than what they are at the whole delta each
    if grid_epsilon < fsum(number * epsilons[training] for training, number in trainings.items()):
        return grid_epsilon, accountant
    basic_epsilon = _basic(trainings, delta)
    return (grid_epsilon, accountant) if grid_epsilon < basic_epsilon else (basic_epsilon, BASIC)


def _basic(trainings: Counter[tuple[SampledGaussian, int]], delta: float) -> float:
    """The sum of their epsilons, each at its share of ``delta``."""
    share = delta / trainings.total()
    return fsum(number * _least_epsilon(*training, share) for training, number in trainings.items())


def _least_epsilon(spending: SampledGaussian, steps: int, delta: float) -> float:
    bounds, _ = bounds_of(spending, steps, delta)
    return min(bound.epsilon for bound in bounds.values() if bound.epsilon is not None)


def _replica_spending(replica: Trained) -> Spent | None:
    """None where nothing bounds it."""
    if replica.accounted_then is not None and not replica.broken:
        return replica.accounted_then.epsilon_upper if replica.accounted_then.releases else None
    if replica.broken or replica.spending is None:
        return None
    if isinstance(replica.spending, Releases):
        return replica.spending.epsilon if isfinite(replica.spending.epsilon) else None
    assert replica.delta is not None, "goes with the spending"
    return replica.spending, replica.steps, replica.delta


def _candidates(search: str, root: Path) -> Iterator[Spent | None]:
    """What each training of a search spent; None where that isn't bounded, or its record doesn't tell."""
    path = search_path(search, root)
    if not path.exists():
        yield None  # what it spent can't be told, so it counts as left out
        return
    record = json.loads(path.read_bytes())
    for candidate in record["candidates"]:
        is_recorded = candidate.get("spent") and not record["provenance"]["reproducible"]
        spending = (
            _candidate_spending(CandidateSpent.model_validate(candidate["spent"])) if is_recorded else None
        )
        for _ in range(candidate["seeds"]):
            yield spending


def _candidate_spending(spent: CandidateSpent) -> Spent:
    if isinstance(spent.spending, float):
        return spent.spending
    return spent.spending, spent.steps, spent.delta
