"""Claims on training curves: slow-down of a level, and the epoch in which a line overtakes another."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf
from statistics import fmean
from typing import Literal

from pydantic import Field

from pipeline.reporting import histories
from pipeline.reporting.histories import Curve, averaged
from pipeline.reporting.judging.claim_test import (
    AtLevels,
    Bounded,
    Outcome,
    Reference,
    Rows,
    not_run,
)
from pipeline.reporting.judging.intervals import Mean, mean
from pipeline.reporting.judging.rule import FEWEST_SEEDS
from pipeline.reporting.printed import PrintedTables
from pipeline.reporting.results import RowResult
from pipeline.reporting.wording import level_words, with_interval

MARGIN = 0.005  # below the best, as a share: the last bit of a curve is noise


class Slower(Bounded):
    """Training at level ``end`` takes so many times as many epochs as at ``start``.

    An epoch counts until validation accuracy first reaches the lower of the two levels' best (means over
    seeds) less `MARGIN`, with linear interpolation between epochs. There is one ratio a seed.
    """

    kind: Literal["slowdown"]
    of: Reference
    start: str = Field(alias="from")
    end: str = Field(alias="to")

    def ours(self, rows: Rows, paper: PrintedTables) -> Iterator[Outcome]:
        """Judge by the ratio of epochs, one per seed."""
        label, end, start = paper.lines[self.of].label, level_words(self.end), level_words(self.start)
        title = f"{label}, epochs at {end} ÷ epochs at {start}"
        measured = measure(rows[self.of].deciding(self.start, self.end), self.start, self.end)
        if measured is None:
            yield not_run(title)
        elif measured.ratio is None or measured.threshold is None:
            yield Outcome("undecided", f"{title}: unknown, {measured.problem}", measured.caveat)
        else:
            reached = f"to reach a validation accuracy of {100 * measured.threshold:.2f} %"
            text = f"{title}, {reached}: {with_interval(measured.ratio, 2)}, {self.needs}"
            yield Outcome(measured.ratio.where(self.above, self.below), text, measured.caveat)


class Overtakes(Bounded, AtLevels):
    """The epoch in which ``left`` overtakes ``right`` for good lies between the bounds.

    From then on ``left`` validates better to the end. A curve stands at its last value until the next, and at
    its very last for good: private training by gradients ends where its budget does, and the other goes on.
    """

    kind: Literal["overtakes"]
    left: Reference
    right: Reference

    def title(self, level: str, paper: PrintedTables) -> str:
        """``LINE overtakes LINE for good at LEVEL``."""
        left, right = paper.lines[self.left].label, paper.lines[self.right].label
        return f"{left} overtakes {right} for good at {level_words(level)}"

    def judge(self, title: str, level: str, rows: Sequence[RowResult], paper: PrintedTables) -> Outcome:
        """Judge by an epoch per seed; the test fails if no seed of several gets there."""
        ahead, behind = (histories.curves(row.history, level) for row in rows)
        epochs = [overtaking(ahead[seed], behind[seed]) for seed in sorted(ahead.keys() & behind.keys())]
        if not epochs:
            return not_run(title)
        caveat = next((row.cells[level].caveat for row in rows if row.cells[level].caveat), None)
        reached = [epoch for epoch in epochs if epoch is not None]
        if len(reached) < len(epochs):
            text = f"{title}: in {len(reached)} of {len(epochs)} seeds"
            fails = not reached and len(epochs) >= FEWEST_SEEDS
            return Outcome("fails" if fails else "undecided", text, caveat)
        when = mean(reached)
        text = f"{title}: after {with_interval(when, 1)} epochs, {self.needs}"
        return Outcome(when.where(self.above, self.below), text, caveat)


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
    before, after = (histories.curves(row.history, level) for level in (start, end))
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


def overtaking(left: Curve, right: Curve) -> float | None:
    """The epoch from which on ``left`` is above ``right`` for good; None where it never is."""
    overtaken = None
    for epoch in sorted({epoch for curve in (left, right) for epoch, _ in curve}, reverse=True):
        if _at(left, epoch) <= _at(right, epoch):
            break
        overtaken = epoch
    return overtaken


def _at(curve: Curve, epoch: float) -> float:
    """The last value noted by then; before its first note a training has nothing to show."""
    place = bisect_right(curve, (epoch, inf))
    return curve[place - 1][1] if place else -inf
