"""``left - right`` between bounds."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

from pipeline.reporting.judging import comparing
from pipeline.reporting.judging.claim_test import (
    Bounded,
    Levels,
    Outcome,
    Reference,
    Rows,
    at_least,
    caveat_of,
    cell_of,
    not_run,
)
from pipeline.reporting.judging.intervals import computed
from pipeline.reporting.printed import PrintedTables
from pipeline.reporting.wording import signed, with_interval


class Difference(Bounded):
    """``left - right`` lies between the bounds, in the table's unit, at each level of ``at``.

    That a line lies above a number, as printed, more training can only help.
    """

    kind: Literal["difference"]
    left: Reference
    right: Reference | float  # another line, or a number such as chance level
    at: Levels
    right_at: str | None = None  # the level of ``right`` when it is one for all, e.g. 'sigma=0'

    @property
    def references(self) -> tuple[str, ...]:
        """The lines compared."""
        return (self.left, self.right) if isinstance(self.right, str) else (self.left,)

    def ours(self, rows: Rows, paper: PrintedTables) -> Iterator[Outcome]:
        """With the 95 % interval of the difference."""
        for level in self.at:
            yield self._ours(level, rows, paper)

    def _ours(self, level: str, rows: Rows, paper: PrintedTables) -> Outcome:
        title = self._title(level, paper)
        left = cell_of(rows[self.left], level)
        if isinstance(self.right, str):
            right = cell_of(rows[self.right], self.right_at or level)
            if left is None or right is None:
                return not_run(title)
            gap = comparing.gap(left, right, comparing.of_one_row(self.left, self.right))
        else:
            if left is None:
                return not_run(title)
            right, gap = None, replace(left.mean, value=left.mean.value - self.right)
        text = f"{title}: {with_interval(gap, paper.decimals_of(self.left), sign=True)}, {self.needs}"
        verdict = gap.where(self.above, self.below)
        if right is None and self.below is None:
            return at_least(verdict, text, left)
        return Outcome(verdict, text, caveat_of(left, right))

    def on_paper(self, paper: PrintedTables) -> Iterator[Outcome]:
        """The difference of the printed numbers."""
        for level in self.at:
            left, right = paper.value(self.left, level), self.right
            other = paper.value(right, self.right_at or level) if isinstance(right, str) else right
            if left is None or other is None:
                continue
            gap = left - other
            shown = signed(gap, paper.decimals_of(self.left))
            text = f"{self._title(level, paper)}: {shown}, {self.needs}"
            yield Outcome(computed(gap).where(self.above, self.below), text)

    def _title(self, level: str, paper: PrintedTables) -> str:
        return comparing.title(paper, "−", self.left, self.right, level, self.right_at)


def step(line: str, level: str, other: str, **bounds: float) -> Difference:
    """The line at ``level`` less itself at ``other``."""
    return Difference(kind="difference", left=line, right=line, at=[level], right_at=other, **bounds)
