"""Two rows side by side at equal proven epsilon."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf, isfinite, log

from pydantic import ValidationError

from pipeline.errors import UserError
from pipeline.params import Settings
from pipeline.privacy.accounting import noise_for, poisson_gaussian, rdp_epsilon, tightest
from pipeline.reporting.judging.guarantees import SAME, guarantee, incomparable
from pipeline.reporting.judging.intervals import Mean, contrast, mean
from pipeline.results import records
from pipeline.results.schema import Ledger
from pipeline.rounding import rounded_down

DIGITS = 4  # of a setting that is suggested


@dataclass(frozen=True)
class Level:
    """What a row reached at one level, in percent, and what is proven of it."""

    level: str
    by_seed: Mapping[int, float]
    mean: Mean
    ledger: Ledger  # of the worst seed

    @property
    def proven(self) -> float:
        """The bound on epsilon; infinite where there is none."""
        return inf if self.ledger.epsilon_upper is None else self.ledger.epsilon_upper


@dataclass(frozen=True)
class Missing:
    """A level that a row lacks to be compared at an epsilon."""

    epsilon: float | None  # that its settings must ask for; None: its noise isn't told by an epsilon


@dataclass(frozen=True)
class Pair:
    """A level of the first row, and what of the second compares with it."""

    one: Level
    # of the second, with the weights of their means: a level proven to spend as much, or the two next to that
    # epsilon, between which accuracies are taken as linear in its logarithm; of less, the most accurate level
    others: tuple[tuple[float, Level], ...]
    difference: Mean | None  # first minus second
    missing: Missing | None  # None: the second has what it takes

    @property
    def interpolated(self) -> bool:
        """Whether the second's accuracy lies between two that were measured."""
        return len(self.others) == 2


def compared(one: str, other: str, settings: Settings) -> list[Pair]:
    """Each level of row ``one``, beside what row ``other`` reaches at the same proven epsilon.

    Raises:
        UserError: there is no such row, it was not run, or is measured by other than accuracy; or the rows'
            epsilons are of different data sets, neighbours or deltas.
    """
    sets = [settings.split(settings.row(key).data).raw for key in (one, other)]
    if sets[0] != sets[1]:
        raise UserError(f"{one} and {other}: epsilons of different data sets, {sets[0]} and {sets[1]}")
    rivals = [level for level in _levels(other, settings) if isfinite(level.proven)]
    pairs = []
    for level in _levels(one, settings):
        for rival in rivals if isfinite(level.proven) else ():
            if why := incomparable(level.ledger, rival.ledger):
                raise UserError(f"{one} and {other}: epsilons that can't be compared: {why}")
        beside = _beside(level.proven, rivals)
        terms = [(1.0, one, level), *((-weight, other, rival) for weight, rival in beside)]
        equal = len(beside) == 2 or any(level.proven <= SAME * rival.proven for _, rival in beside)
        lacks = isfinite(level.proven) and rivals and not equal
        pairs.append(
            Pair(
                level,
                beside,
                contrast(terms) if beside else None,
                _missing(other, level.ledger, settings) if lacks else None,
            )
        )
    return pairs


def _beside(epsilon: float, rivals: Sequence[Level]) -> tuple[tuple[float, Level], ...]:
    """What of the second row compares with a level of this proven epsilon, and how much each counts."""
    if not 0 < epsilon < inf:
        return ()
    if same := [rival for rival in rivals if epsilon / SAME <= rival.proven <= SAME * epsilon]:
        return ((1.0, max(same, key=lambda rival: rival.mean.value)),)
    below = [rival for rival in rivals if 0 < rival.proven < epsilon]
    above = [rival for rival in rivals if rival.proven > epsilon]
    if below and above:
        low, high = max(below, key=lambda rival: rival.proven), min(above, key=lambda rival: rival.proven)
        share = log(epsilon / low.proven) / log(high.proven / low.proven)
        return ((1 - share, low), (share, high))
    return ((1.0, max(below, key=lambda rival: rival.mean.value)),) if below else ()


def _missing(key: str, ledger: Ledger, settings: Settings) -> Missing:
    """The level of row ``key`` that would be proven to spend what this ledger proves."""
    row, epsilon, delta = settings.rows[key], ledger.epsilon_upper, ledger.delta
    told = "accountant" in row.own_settings.model_fields and (row.axis or row.own_settings.axis) == "epsilon"
    if not told or not epsilon or not delta:
        return Missing(None)
    try:
        own = row.configured({"epsilon": epsilon})
        examples = settings.split(row.data).train
        rate, steps = own.batch / examples, own.total_steps(examples)
        if own.accountant == "rdp":  # which asks for more noise at the same epsilon
            noise = noise_for(epsilon, delta, rate, steps, tightest(steps, delta))
            epsilon = rdp_epsilon(poisson_gaussian(rate, noise, steps), delta)
    except (ValidationError, UserError):
        return Missing(None)
    return Missing(float(rounded_down(epsilon, DIGITS)))


def _levels(key: str, settings: Settings) -> list[Level]:
    record = records.read(key, settings.row(key))
    if record is None:
        raise UserError(f"{key}: not run; `dprepro train {key}`, `evaluate` and `ledger` make its numbers")
    levels = []
    for level in dict.fromkeys(replica.level for replica in record.replicas):
        replicas = [replica for replica in record.replicas if replica.level == level]
        by_seed = {replica.seed: 100 * replica.metrics["test_accuracy"] for replica in replicas}
        worst = guarantee(replicas, record.provenance.reproducible).ledger
        levels.append(Level(level, by_seed, mean([*by_seed.values()]), worst))
    return sorted(levels, key=lambda found: -found.proven)
