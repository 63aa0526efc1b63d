"""What one line loses from a level to another, against what another line loses."""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from pipeline.reporting.judging.claim_test import (
    ClaimTest,
    Levels,
    Outcome,
    Reference,
    Rows,
    caveat_of,
    cell_of,
    not_run,
)
from pipeline.reporting.judging.intervals import difference, mean
from pipeline.reporting.printed import PrintedTables
from pipeline.reporting.results import Cell
from pipeline.reporting.wording import fixed, level_words, number, with_interval


class Gap(ClaimTest):
    """From ``start`` to each level of ``at``, ``of`` loses less than ``share`` of what ``than`` loses."""

    kind: Literal["gap"]
    of: Reference
    than: Reference
    start: str = Field(alias="from")
    at: Levels
    share: Annotated[float, Field(gt=0)]

    @property
    def references(self) -> tuple[str, ...]:
        """The lines compared."""
        return (self.of, self.than)

    def ours(self, rows: Rows, paper: PrintedTables) -> Iterator[Outcome]:
        """Losses go seed by seed, the two lines' seeds are independent."""
        for level in self.at:
            yield self._ours(level, rows, paper)

    def _ours(self, level: str, rows: Rows, paper: PrintedTables) -> Outcome:
        title = self._title(level, paper)
        own = [cell_of(rows[self.of], at) for at in (self.start, level)]
        other = [cell_of(rows[self.than], at) for at in (self.start, level)]
        if own[0] is None or own[1] is None or other[0] is None or other[1] is None:
            return not_run(title)
        left, right = _loss(own[0], own[1]), _loss(other[0], other[1])
        rest = difference(left, [self.share * loss for loss in right])
        decimals = paper.decimals_of(self.of)
        text = (
            f"{title}: {fixed(mean(left).value, decimals)} and {fixed(mean(right).value, decimals)}; "
            f"{with_interval(rest, decimals, sign=True)} to be below 0"
        )
        return Outcome(rest.where(None, 0), text, caveat_of(*own, *other))

    def on_paper(self, paper: PrintedTables) -> Iterator[Outcome]:
        """The losses of the printed numbers."""
        for level in self.at:
            values = [paper.value(line, at) for line in (self.of, self.than) for at in (self.start, level)]
            before, after, other_before, other_after = values
            if before is None or after is None or other_before is None or other_after is None:
                continue
            own, other = before - after, other_before - other_after
            decimals = paper.decimals_of(self.of)
            text = f"{self._title(level, paper)}: {fixed(own, decimals)} and {fixed(other, decimals)}"
            yield Outcome("holds" if own < self.share * other else "fails", text)

    def _title(self, level: str, paper: PrintedTables) -> str:
        of, than = paper.lines[self.of].label, paper.lines[self.than].label
        share = "" if self.share == 1 else f"{number(self.share)} of "
        return (
            f"{of} loses less than {share}what {than} loses "
            f"from {level_words(self.start)} to {level_words(level)}"
        )


def _loss(start: Cell, end: Cell) -> list[float]:
    before, after = start.by_seed, end.by_seed
    return [before[seed] - after[seed] for seed in sorted(before.keys() & after.keys())]
