"""One line's training that comes as far as another's in fewer epochs."""

from collections.abc import Iterator
from typing import Literal

from pipeline.reporting import histories
from pipeline.reporting.judging import slowdown
from pipeline.reporting.judging.claim_test import (
    Levels,
    OfTwoLines,
    Outcome,
    Rows,
    caveat_of,
    cell_of,
    not_run,
)
from pipeline.reporting.judging.intervals import difference
from pipeline.reporting.printed import PrintedTables
from pipeline.reporting.results import RowResult
from pipeline.reporting.wording import level_words, with_interval


class Sooner(OfTwoLines):
    """``left`` takes fewer epochs than ``right`` to what both reach, at each level; see `slowdown.RULE`."""

    kind: Literal["sooner"]
    at: Levels

    def ours(self, rows: Rows, paper: PrintedTables) -> Iterator[Outcome]:
        """From the training curves; the two lines' seeds are independent."""
        for level in self.at:
            left, right = paper.lines[self.left].label, paper.lines[self.right].label
            title = f"{left}, epochs less than {right} at {level_words(level)}"
            yield _ours(title, level, rows[self.left], rows[self.right])


def _ours(title: str, level: str, left: RowResult | None, right: RowResult | None) -> Outcome:
    one, other = cell_of(left, level), cell_of(right, level)
    if left is None or right is None or one is None or other is None:
        return not_run(title)
    curves = [
        histories.read(row.history).get(slowdown.METRIC, {}).get(level, {}) if row.history else {}
        for row in (left, right)
    ]
    caveat = caveat_of(one, other)
    if not all(curves):
        return Outcome("undecided", f"{title}: unknown, there are no training curves", caveat)
    threshold, epochs = slowdown.race(*curves)
    reached = [[epoch for epoch in side if epoch is not None] for side in epochs]
    if any(len(some) < len(side) for some, side in zip(reached, epochs, strict=True)):
        return Outcome("undecided", f"{title}: unknown, not every seed came so far", caveat)
    gap = difference(*reached)
    text = (
        f"{title}, to a validation accuracy of {100 * threshold:.2f} %: "
        f"{with_interval(gap, 1, sign=True)}, to be below 0"
    )
    return Outcome(gap.where(None, 0), text, caveat)
