"""The mean over levels of ``left - right`` between bounds."""

from collections.abc import Iterator
from statistics import fmean
from typing import Annotated, Literal

from pydantic import Field

from pipeline.reporting.judging.claim_test import (
    BoundedLines,
    Outcome,
    Rows,
    caveat_of,
    cell_of,
    not_run,
)
from pipeline.reporting.judging.intervals import computed, difference
from pipeline.reporting.printed import PrintedTables
from pipeline.reporting.results import Cell
from pipeline.reporting.wording import level_words, signed, with_interval


class Average(BoundedLines):
    """The mean over the levels of ``at`` of ``left - right`` lies between the bounds, in the table's unit."""

    kind: Literal["average"]
    at: Annotated[list[str], Field(min_length=2)]

    def ours(self, rows: Rows, paper: PrintedTables) -> Iterator[Outcome]:
        """With the 95 % interval of the mean."""
        title = self._title(paper)
        left = [cell_of(rows[self.left], level) for level in self.at]
        right = [cell_of(rows[self.right], level) for level in self.at]
        if not all(left) or not all(right):
            yield not_run(title)
            return
        gap = difference(_over_levels(left), _over_levels(right))
        text = f"{title}: {with_interval(gap, paper.decimals_of(self.left), sign=True)}, {self.needs}"
        yield Outcome(gap.where(self.above, self.below), text, caveat_of(*left, *right))

    def on_paper(self, paper: PrintedTables) -> Iterator[Outcome]:
        """The mean of the printed numbers, where all are there."""
        left, right = (
            [value for level in self.at if (value := paper.value(line, level)) is not None]
            for line in (self.left, self.right)
        )
        if len(left) == len(right) == len(self.at):
            gap = fmean(left) - fmean(right)
            shown = signed(gap, paper.decimals_of(self.left))
            text = f"{self._title(paper)}: {shown}, {self.needs}"
            yield Outcome(computed(gap).where(self.above, self.below), text)

    def _title(self, paper: PrintedTables) -> str:
        left, right = paper.lines[self.left].label, paper.lines[self.right].label
        return f"{left} − {right}, mean over {', '.join(map(level_words, self.at))}"


def _over_levels(cells: list[Cell | None]) -> list[float]:
    """One mean over the levels for each seed that has them all."""
    by_seed = [cell.by_seed for cell in cells if cell]
    seeds = set.intersection(*(set(values) for values in by_seed))
    return [fmean(values[seed] for values in by_seed) for seed in sorted(seeds)]
