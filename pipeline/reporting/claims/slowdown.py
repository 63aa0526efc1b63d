"""How many times as long training takes at one level as at another."""

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from pipeline.reporting.judging import slowdown
from pipeline.reporting.judging.claim_test import Bounded, OfOneLine, Outcome, Rows, not_run
from pipeline.reporting.printed import PrintedTables
from pipeline.reporting.wording import level_words, with_interval


class Slower(OfOneLine, Bounded):
    """Training at level ``end`` takes so many times as many epochs as at ``start``; see `slowdown.RULE`."""

    kind: Literal["slowdown"]
    start: str = Field(alias="from")
    end: str = Field(alias="to")

    def ours(self, rows: Rows, paper: PrintedTables) -> Iterator[Outcome]:
        """From the training curves."""
        label, end, start = paper.lines[self.of].label, level_words(self.end), level_words(self.start)
        title = f"{label}, epochs at {end} ÷ epochs at {start}"
        row = rows[self.of].row(self.end)
        measured = slowdown.measure(row, self.start, self.end)
        if measured is None:
            yield not_run(title)
        elif measured.ratio is None or measured.threshold is None:
            yield Outcome("undecided", f"{title}: unknown, {measured.problem}", measured.caveat)
        else:
            text = (
                f"{title}, to reach a validation accuracy of {100 * measured.threshold:.2f} %: "
                f"{with_interval(measured.ratio, 2)}, {self.needs}"
            )
            yield Outcome(measured.ratio.where(self.above, self.below), text, measured.caveat)
