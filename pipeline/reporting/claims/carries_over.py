"""Whether the level that is best for one line suits another."""

from collections.abc import Iterator
from typing import Literal

from pipeline.reporting.judging import best_level
from pipeline.reporting.judging.claim_test import BoundedLines, Outcome, Rows
from pipeline.reporting.printed import PrintedTables


class CarriesOver(BoundedLines):
    """What ``right`` misses of its own best, at the level where ``left`` is best, lies between the bounds."""

    kind: Literal["carries_over"]

    def ours(self, rows: Rows, paper: PrintedTables) -> Iterator[Outcome]:
        """With the 95 % interval of what is missed."""
        left, right = paper.lines[self.left].label, paper.lines[self.right].label
        title = f"{right} at its best − at the best of {left}"
        gap = best_level.shortfall(rows[self.left], rows[self.right])
        yield best_level.outcome(self, title, gap, rows, paper)
