"""Claims on training curves: slow-down of a level, and the epoch in which a line overtakes another."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from math import inf
from typing import Literal

from pydantic import Field

from pipeline.reporting import histories
from pipeline.reporting.histories import Curve
from pipeline.reporting.judging import slowdown
from pipeline.reporting.judging.claim_test import (
    AtLevels,
    Bounded,
    Outcome,
    Reference,
    Rows,
    not_run,
)
from pipeline.reporting.judging.intervals import mean
from pipeline.reporting.judging.rule import FEWEST_SEEDS
from pipeline.reporting.printed import PrintedTables
from pipeline.reporting.results import RowResult
from pipeline.reporting.wording import level_words, with_interval


class Slower(Bounded):
    """Training at level ``end`` takes so many times as many epochs as at ``start``; see `words.yaml`."""

    kind: Literal["slowdown"]
    of: Reference
    start: str = Field(alias="from")
    end: str = Field(alias="to")

    def ours(self, rows: Rows, paper: PrintedTables) -> Iterator[Outcome]:
        """Judge by the ratio of epochs, one per seed."""
        label, end, start = paper.lines[self.of].label, level_words(self.end), level_words(self.start)
        title = f"{label}, epochs at {end} ÷ epochs at {start}"
        measured = slowdown.measure(rows[self.of].deciding(self.start, self.end), self.start, self.end)
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
        ahead, behind = (_curves(row, level) for row in rows)
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


def overtaking(left: Curve, right: Curve) -> float | None:
    """The epoch from which on ``left`` is above ``right`` for good; None where it never is."""
    overtaken = None
    for epoch in sorted({epoch for curve in (left, right) for epoch, _ in curve}, reverse=True):
        if _at(left, epoch) <= _at(right, epoch):
            break
        overtaken = epoch
    return overtaken


def _curves(row: RowResult, level: str) -> dict[int, Curve]:
    """The validation accuracies of each seed."""
    return histories.read(row.history).get(slowdown.METRIC, {}).get(level, {}) if row.history else {}


def _at(curve: Curve, epoch: float) -> float:
    """The last value noted by then; before its first note a training has nothing to show."""
    place = bisect_right(curve, (epoch, inf))
    return curve[place - 1][1] if place else -inf
