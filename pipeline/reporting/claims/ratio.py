"""``left / right`` between bounds."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

from pipeline.reporting.judging import comparing
from pipeline.reporting.judging.claim_test import (
    BoundedLines,
    Levels,
    Outcome,
    Rows,
    Verdict,
    caveat_of,
    cell_of,
    not_run,
)
from pipeline.reporting.judging.intervals import computed
from pipeline.reporting.printed import PrintedTables
from pipeline.reporting.results import Cell
from pipeline.reporting.wording import number


class Ratio(BoundedLines):
    """``left / right`` lies between the bounds, at each level of ``at``; of numbers above zero."""

    kind: Literal["ratio"]
    at: Levels
    right_at: str | None = None  # the level of ``right`` when it is one for all

    def ours(self, rows: Rows, paper: PrintedTables) -> Iterator[Outcome]:
        """With the interval of ``left - bound * right``, whose sign tells."""
        for level in self.at:
            yield self._ours(level, rows, paper)

    def _ours(self, level: str, rows: Rows, paper: PrintedTables) -> Outcome:
        title = self._title(level, paper)
        left, right = cell_of(rows[self.left], level), cell_of(rows[self.right], self.right_at or level)
        if left is None or right is None:
            return not_run(title)
        same = comparing.of_one_row(self.left, self.right)
        # left / right is above a where left - a right is above zero
        verdicts: list[Verdict] = []
        if self.above is not None:
            verdicts.append(comparing.gap(left, _times(self.above, right), same).where(0, None))
        if self.below is not None:
            verdicts.append(comparing.gap(left, _times(self.below, right), same).where(None, 0))
        verdict = next((one for one in ("fails", "undecided") if one in verdicts), verdicts[0])
        text = f"{title}: {number(left.mean.value / right.mean.value)}, {self.needs}"
        return Outcome(verdict, text, caveat_of(left, right))

    def on_paper(self, paper: PrintedTables) -> Iterator[Outcome]:
        """The ratio of the printed numbers."""
        for level in self.at:
            left, right = paper.value(self.left, level), paper.value(self.right, self.right_at or level)
            if left is not None and right is not None:
                text = f"{self._title(level, paper)}: {number(left / right)}, {self.needs}"
                yield Outcome(computed(left / right).where(self.above, self.below), text)

    def _title(self, level: str, paper: PrintedTables) -> str:
        return comparing.title(paper, "÷", self.left, self.right, level, self.right_at)


def _times(factor: float, cell: Cell) -> Cell:
    half = None if cell.mean.half is None else factor * cell.mean.half
    values = tuple(factor * value for value in cell.values)
    return replace(cell, values=values, mean=replace(cell.mean, value=factor * cell.mean.value, half=half))
