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
class Comparison:
    """A level of the first row, and what of the second compares with it."""

    level: Level
    # of the second, with the weights of their means: a level proven to spend as much, or the two next to that
    # epsilon, between which accuracies are taken as linear in its logarithm; of less, the most accurate level
    rivals: tuple[tuple[float, Level], ...]
    difference: Mean | None  # first minus second
    lacking: bool  # the second has no level that is proven to spend as much
    asked: float | None  # the epsilon that such a level asks for; None: its noise isn't told by an epsilon

    @property
    def interpolated(self) -> bool:
        """Whether the second's accuracy lies between two that were measured."""
        return len(self.rivals) == 2


def compared(first: str, second: str, settings: Settings) -> list[Comparison]:
    """Each level of row ``first``, beside what row ``second`` reaches at the same proven epsilon.

    Raises:
        UserError: there is no such row, it was not run, or is measured by other than accuracy; or the rows'
            epsilons are of different data sets, neighbours or deltas.
    """
    sets = [settings.split(settings.row(key).data).raw for key in (first, second)]
    if sets[0] != sets[1]:
        raise UserError(f"{first} and {second}: epsilons of different data sets, {sets[0]} and {sets[1]}")
    bounded = [level for level in _levels(second, settings) if isfinite(level.proven)]
    comparisons = []
    for level in _levels(first, settings):
        for rival in bounded if isfinite(level.proven) else ():
            if why := incomparable(level.ledger, rival.ledger):
                raise UserError(f"{first} and {second}: epsilons that can't be compared: {why}")
        rivals = _rivals(level.proven, bounded)
        terms = [(1.0, first, level), *((-weight, second, rival) for weight, rival in rivals)]
        equal = len(rivals) == 2 or any(level.proven <= SAME * rival.proven for _, rival in rivals)
        lacking = isfinite(level.proven) and bool(bounded) and not equal
        asked = _asked(second, level.ledger, settings) if lacking else None
        comparisons.append(Comparison(level, rivals, contrast(terms) if rivals else None, lacking, asked))
    return comparisons


def _rivals(epsilon: float, bounded: Sequence[Level]) -> tuple[tuple[float, Level], ...]:
    """What of the second row compares with a level of this proven epsilon, and how much each counts."""
    if not 0 < epsilon < inf:
        return ()
    if same := [rival for rival in bounded if epsilon / SAME <= rival.proven <= SAME * epsilon]:
        return ((1.0, max(same, key=lambda rival: rival.mean.value)),)
    below = [rival for rival in bounded if 0 < rival.proven < epsilon]
    above = [rival for rival in bounded if rival.proven > epsilon]
    if below and above:
        low, high = max(below, key=lambda rival: rival.proven), min(above, key=lambda rival: rival.proven)
        share = log(epsilon / low.proven) / log(high.proven / low.proven)
        return ((1 - share, low), (share, high))
    return ((1.0, max(below, key=lambda rival: rival.mean.value)),) if below else ()


def _asked(key: str, ledger: Ledger, settings: Settings) -> float | None:
    """The epsilon that a level of row ``key`` asks for to be proven to spend what this ledger proves."""
    row, epsilon, delta = settings.rows[key], ledger.epsilon_upper, ledger.delta
    told = "accountant" in row.own_settings.model_fields and (row.axis or row.own_settings.axis) == "epsilon"
    if not told or not epsilon or not delta:
        return None
    try:
        level = row.configured({"epsilon": epsilon})
        examples = settings.split(row.data).train
        rate, steps = level.batch / examples, level.total_steps(examples)
        if level.accountant == "rdp":  # which asks for more noise at the same epsilon
            noise = noise_for(epsilon, delta, rate, steps, tightest(steps, delta))
            epsilon = rdp_epsilon(poisson_gaussian(rate, noise, steps), delta)
    except (ValidationError, UserError):
        return None
    return float(rounded_down(epsilon, DIGITS))


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
    return sorted(levels, key=lambda level: -level.proven)
