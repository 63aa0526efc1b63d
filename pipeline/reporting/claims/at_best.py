"""Two lines, each at its best level."""

from collections.abc import Iterator
from typing import Literal

from pipeline.reporting.judging import best_level
from pipeline.reporting.judging.claim_test import BoundedLines, Outcome, Rows
from pipeline.reporting.printed import PrintedTables


class AtBest(BoundedLines):
    """``left`` at its best level, by validation data, less ``right`` at its own lies between the bounds."""

    kind: Literal["at_best"]

    def ours(self, rows: Rows, paper: PrintedTables) -> Iterator[Outcome]:
        """With the 95 % interval of the difference."""
        left, right = paper.lines[self.left].label, paper.lines[self.right].label
        title = f"{left} − {right}, each at its best"
        gap = best_level.lead(rows[self.left], rows[self.right])
        yield best_level.outcome(self, title, gap, rows, paper)
