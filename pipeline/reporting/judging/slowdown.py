"""Slow-down of training from one level to another, by the training curves."""

from dataclasses import dataclass
from statistics import fmean

from pipeline.reporting import histories
from pipeline.reporting.histories import Curve, averaged
from pipeline.reporting.judging.intervals import Mean, mean
from pipeline.reporting.results import RowResult, TableResult
from pipeline.reporting.wording import level_words, row_words, with_interval

METRIC = "validation_accuracy"
MARGIN = 0.005  # points below the best, as a share: the last bit of a curve is noise
HEAD = ("row", "levels", "validation accuracy to reach", "epochs", "slow-down")


@dataclass(frozen=True)
class Slowdown:
    """Training at level ``end`` against level ``start``."""

    row: RowResult
    start: str
    end: str
    threshold: float | None = None  # validation accuracy to reach, a share
    epochs: tuple[float, float] | None = None  # at both levels, means over seeds
    ratio: Mean | None = None  # None: see `problem`
    problem: str | None = None  # why there is no ratio
    unresolved: str | None = None  # why the curves are too coarse for it

    @property
    def texts(self) -> list[str]:
        """In words under `HEAD`."""
        levels = [row_words(self.row), f"{level_words(self.start)} → {level_words(self.end)}"]
        if self.threshold is None or self.epochs is None or self.ratio is None:
            return [*levels, "", "", f"unknown: {self.problem}"]
        before, after = self.epochs
        # a caveat of the whole row stands beside its name
        unresolved = f" [{self.unresolved}]" if self.unresolved else ""
        ratio = with_interval(self.ratio, 2) + unresolved
        return [*levels, f"{100 * self.threshold:.2f} %", f"{before:.1f} → {after:.1f}", ratio]

    @property
    def caveat(self) -> str | None:
        """Reason why the ratio decides nothing; None if it decides."""
        cells = (self.row.cells[self.start], self.row.cells[self.end])
        return next((cell.caveat for cell in cells if cell.caveat), self.unresolved)


def measure(row: RowResult | None, start: str, end: str) -> Slowdown | None:
    """The slow-down from ``start`` to ``end``; None where the row was not run at both.

    Raises:
        UserError: the row's history is not one.
    """
    if row is None or start not in row.cells or end not in row.cells:
        return None
    for level in (start, end):
        cell = row.cells[level]
        if cell.converged < cell.mean.n:
            words = f"only {cell.converged} of {cell.mean.n} seeds converged at {level_words(level)}"
            return Slowdown(row, start, end, problem=words)
    by_level = histories.read(row.history).get(METRIC, {}) if row.history else {}
    before, after = by_level.get(start, {}), by_level.get(end, {})
    seeds = sorted(before.keys() & after.keys())
    if not seeds:
        return Slowdown(row, start, end, problem="there are no training curves")
    threshold = min(_best(before), _best(after)) - MARGIN
    reached = [(_reached(before[seed], threshold), _reached(after[seed], threshold)) for seed in seeds]
    both = [(first, second) for first, second in reached if first is not None and second is not None]
    if len(both) < len(reached):
        words = f"only {len(both)} of {len(reached)} seeds came so far"
        return Slowdown(row, start, end, threshold, problem=words)
    starts, ends = zip(*both, strict=True)
    # nothing is recorded before the first epoch's end
    early = [
        level_words(level)
        for level, curves, epochs in ((start, before, starts), (end, after, ends))
        if any(epoch == curves[seed][0][0] for seed, epoch in zip(seeds, epochs, strict=True))
    ]
    return Slowdown(
        row,
        start,
        end,
        threshold,
        (fmean(starts), fmean(ends)),
        mean([second / first for first, second in both]),
        unresolved=f"reached within the first epoch at {' and at '.join(early)}" if early else None,
    )


def lines(result: TableResult) -> list[list[str]]:
    """Slow-downs of the table's rows that ran, as text under `HEAD`."""
    start = result.table.slowdown
    if start is None:
        return []
    measurements = (measure(row, start, end) for row in result.rows for end in result.levels if end != start)
    return [slowdown.texts for slowdown in measurements if slowdown is not None]


def _best(curves: dict[int, Curve]) -> float:
    return max(value for _, value in averaged(curves))


def _reached(curve: Curve, threshold: float) -> float | None:
    """The epoch at which the curve first reaches the threshold; None where it never does."""
    previous = None
    for epoch, value in curve:
        if value >= threshold:
            if previous is None:
                return epoch
            share = (threshold - previous[1]) / (value - previous[1])
            return previous[0] + share * (epoch - previous[0])
        previous = (epoch, value)
    return None
