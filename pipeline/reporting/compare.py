"""Two rows side by side at equal proven epsilon."""

from dataclasses import dataclass
from math import inf, isfinite

from pipeline.errors import UserError
from pipeline.params import Settings
from pipeline.reporting.judging.guarantees import SAME, guarantee, incomparable
from pipeline.reporting.judging.intervals import Mean, difference, mean
from pipeline.results import records
from pipeline.results.schema import Ledger


@dataclass(frozen=True)
class Level:
    """What a row reached at one level, in percent, and what is proven of it."""

    level: str
    values: tuple[float, ...]  # one a seed
    mean: Mean
    ledger: Ledger  # of the worst seed

    @property
    def proven(self) -> float:
        """The bound on epsilon; infinite where there is none."""
        return inf if self.ledger.accounted is None else self.ledger.accounted


@dataclass(frozen=True)
class Pair:
    """A level of the first row, and what of the second compares with it."""

    first: Level
    rival: Level | None  # the most accurate that is proven to spend no more; none where nothing is proven
    difference: Mean | None  # first minus second


def compared(key: str, other: str, settings: Settings) -> list[Pair]:
    """Each level of row ``key``, beside the best of row ``other`` that is proven to spend no more.

    Raises:
        UserError: there is no such row, it was not run, or is measured by other than accuracy; or the rows'
            epsilons are of different data sets, neighbours or deltas.
    """
    sets = [settings.split(settings.row(row).data).raw for row in (key, other)]
    if sets[0] != sets[1]:
        raise UserError(f"{key} and {other}: epsilons of different data sets, {sets[0]} and {sets[1]}")
    rivals = [level for level in _levels(other, settings) if isfinite(level.proven)]
    pairs = []
    for level in _levels(key, settings):
        for rival in rivals if isfinite(level.proven) else ():
            if why := incomparable(level.ledger, rival.ledger):
                raise UserError(f"{key} and {other}: epsilons that can't be compared: {why}")
        fitting = [rival for rival in rivals if rival.proven <= SAME * level.proven < inf]
        best = max(fitting, key=lambda rival: rival.mean.value, default=None)
        pairs.append(Pair(level, best, difference(level.values, best.values) if best else None))
    return pairs


def _levels(key: str, settings: Settings) -> list[Level]:
    record = records.read(key, settings.row(key))
    if record is None:
        raise UserError(f"{key}: not run; `dprepro train {key}`, `evaluate` and `ledger` make its numbers")
    levels = []
    for level in dict.fromkeys(replica.level for replica in record.replicas):
        replicas = [replica for replica in record.replicas if replica.level == level]
        values = tuple(100 * replica.metrics["test_accuracy"] for replica in replicas)
        worst = guarantee(replicas, record.provenance.reproducible).ledger
        levels.append(Level(level, values, mean(values), worst))
    return sorted(levels, key=lambda level: -level.proven)
