"""When one line's training overtakes another's, from the training curves."""

from bisect import bisect_right
from collections.abc import Iterator
from math import inf
from typing import Literal

from pipeline.reporting import histories
from pipeline.reporting.histories import Curve
from pipeline.reporting.judging.claim_test import (
    Bounded,
    Levels,
    OfTwoLines,
    Outcome,
    Rows,
    Verdict,
    caveat_of,
    not_run,
)
from pipeline.reporting.judging.intervals import mean
from pipeline.reporting.judging.slowdown import METRIC
from pipeline.reporting.printed import PrintedTables
from pipeline.reporting.results import RowResult
from pipeline.reporting.wording import level_words, with_interval


class Overtakes(OfTwoLines, Bounded):
    """The epoch in which ``left`` overtakes ``right`` for good lies between the bounds; see `epochs`."""

    kind: Literal["overtakes"]
    at: Levels

    def ours(self, rows: Rows, paper: PrintedTables) -> Iterator[Outcome]:
        """One epoch a seed; where it never comes to that in any seed the test fails."""
        for level in self.at:
            yield self._ours(level, rows, paper)

    def _ours(self, level: str, rows: Rows, paper: PrintedTables) -> Outcome:
        left, right = paper.lines[self.left].label, paper.lines[self.right].label
        title = f"{left} overtakes {right} for good at {level_words(level)}"
        overtaken = epochs(rows[self.left].row(level), rows[self.right].row(level), level)
        if not overtaken:
            return not_run(title)
        caveat = caveat_of(rows[self.left].cell(level), rows[self.right].cell(level))
        reached = [epoch for epoch in overtaken if epoch is not None]
        if len(reached) < len(overtaken):
            verdict: Verdict = "undecided" if reached else "fails"
            return Outcome(verdict, f"{title}: in {len(reached)} of {len(overtaken)} seeds", caveat)
        when = mean(reached)
        text = f"{title}: after {with_interval(when, 1)} epochs, {self.needs}"
        return Outcome(when.where(self.above, self.below), text, caveat)


def epochs(left: RowResult | None, right: RowResult | None, level: str) -> list[float | None]:
    """For each seed the epoch from which on ``left`` validates better to the end; None: it never does.

    A curve stands at its last value until the next, and at its very last for good: private training by
    gradients ends where its budget does, and the other goes on. Empty where one of them has no curve there.

    Raises:
        UserError: a row's history is not one.
    """
    ahead, behind = _curves(left, level), _curves(right, level)
    return [_overtaking(ahead[seed], behind[seed]) for seed in sorted(ahead.keys() & behind.keys())]


def _curves(row: RowResult | None, level: str) -> dict[int, Curve]:
    if row is None or row.history is None or level not in row.cells:
        return {}
    return histories.read(row.history).get(METRIC, {}).get(level, {})


def _overtaking(left: Curve, right: Curve) -> float | None:
    found = None
    for epoch in sorted({epoch for curve in (left, right) for epoch, _ in curve}, reverse=True):
        if _at(left, epoch) <= _at(right, epoch):
            break
        found = epoch
    return found


def _at(curve: Curve, epoch: float) -> float:
    """The last value noted by then; before its first note a training has nothing to show."""
    place = bisect_right(curve, (epoch, inf))
    return curve[place - 1][1] if place else -inf
