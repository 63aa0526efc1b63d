"""Comparison of two rows at equal proven epsilon."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, isfinite

from dprepro.errors import UserError
from dprepro.pipeline.params import Settings
from dprepro.pipeline.reporting.effects import difference
from dprepro.pipeline.reporting.privacy import SAME, incomparable, worst
from dprepro.pipeline.reporting.table import Columns, RowResults, Sources, read_sources
from dprepro.pipeline.reporting.verdict import Mean
from dprepro.pipeline.results.schema import Ledger

METRIC = "test_accuracy"


@dataclass(frozen=True)
class Level:
    """A row at a level: a line of the table of results, and the ledger of its least private seed."""

    line: Columns
    ledger: Ledger

    @property
    def proven(self) -> float:
        """Proven epsilon; infinity if none is proven."""
        upper = self.line["epsilon_upper"]
        return inf if upper is None else float(upper)

    @property
    def accuracy(self) -> Mean:
        """Mean accuracy in percent."""
        return Mean(self.line["ours"], self.line["half_width"], len(self.line["by_seed"]))


@dataclass(frozen=True)
class Comparison:
    """A level of the first row, and the comparable level of the second row."""

    level: Level
    rival: Level | None  # has an equal proven epsilon, or else a smaller one; None: no such level
    difference: Mean | None  # accuracy of the first minus that of the second
    lacking: bool  # the second row has no level with an equal proven epsilon


def compared(first: str, second: str, settings: Settings) -> list[Comparison]:
    """Compare each level of row ``first`` with row ``second`` at the same proven epsilon.

    Raises:
        UserError: a row doesn't exist or was not run, or the rows' epsilons are for different data sets,
            neighbours or deltas.
    """
    sets = [settings.raw_set(settings.split(settings.row(key).data).raw) for key in (first, second)]
    if sets[0] != sets[1]:
        raise UserError(f"{first} and {second}: epsilons of different data sets, {sets[0]} and {sets[1]}")
    sources = read_sources(settings, rows=(first, second))
    bounded = [level for level in _levels(second, sources) if isfinite(level.proven)]
    comparisons = []
    for level in _levels(first, sources):
        for other in bounded if isfinite(level.proven) else ():
            if why := incomparable(level.ledger, other.ledger):
                raise UserError(f"{first} and {second}: epsilons that can't be compared: {why}")
        rival = _rival(level.proven, bounded)
        apart = difference(level.line, rival.line) if rival else None
        equal = rival is not None and level.proven <= SAME * rival.proven
        lacking = isfinite(level.proven) and bool(bounded) and not equal
        comparisons.append(Comparison(level, rival, apart, lacking))
    return comparisons


def _rival(epsilon: float, bounded: Sequence[Level]) -> Level | None:
    """Level in ``bounded`` with the proven epsilon ``epsilon``; if there is none, one with a smaller epsilon.

    If there are several, the one with the highest validation accuracy is taken. Test data play no part.
    """
    if not 0 < epsilon < inf:
        return None
    same = [rival for rival in bounded if epsilon / SAME <= rival.proven <= SAME * epsilon]
    smaller = [rival for rival in bounded if rival.proven < epsilon]
    return max(same or smaller, key=lambda rival: rival.line["validation"], default=None)


def _levels(key: str, sources: Sources) -> list[Level]:
    """Levels of a row, sorted by falling proven epsilon."""
    record = sources.records.get(key)
    if record is None:
        raise UserError(f"{key}: not run; `dprepro train {key}`, `evaluate` and `ledger` make its numbers")
    lines = RowResults(key, sources.settings.rows[key], sources).lines(METRIC)
    levels = [
        Level(line, worst(each.ledger for each in record.trainings if each.level == line["level"]))
        for line in lines
        if "ours" in line
    ]
    return sorted(levels, key=lambda level: -level.proven)
