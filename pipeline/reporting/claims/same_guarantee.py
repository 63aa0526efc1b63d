"""Two lines that are proven the same epsilon."""

from collections.abc import Iterator
from typing import Literal

from pipeline.reporting.judging.claim_test import (
    Levels,
    OfTwoLines,
    Outcome,
    Rows,
    Verdict,
    guarantee_caveat,
    not_run,
)
from pipeline.reporting.printed import PrintedTables
from pipeline.reporting.wording import bound, level_words

# Accountants differ in their grids: two bounds that are no further apart are taken for the same
SAME = 1.01


class SameGuarantee(OfTwoLines):
    """``left`` and ``right`` are proven the same epsilon, at each level of ``at``."""

    kind: Literal["same_guarantee"]
    at: Levels

    def ours(self, rows: Rows, paper: PrintedTables) -> Iterator[Outcome]:
        """By the bounds of both ledgers, to one percent."""
        for level in self.at:
            yield self._ours(level, rows, paper)

    def _ours(self, level: str, rows: Rows, paper: PrintedTables) -> Outcome:
        left, right = rows[self.left].row(level), rows[self.right].row(level)
        title = f"{paper.lines[self.left].label} and {paper.lines[self.right].label} at {level_words(level)}"
        cells = rows[self.left].cell(level), rows[self.right].cell(level)
        if cells[0] is None or cells[1] is None:
            return not_run(title)
        one, other = cells[0].guarantee.ledger, cells[1].guarantee.ledger
        text = f"{title}: proven {bound(one)} and {bound(other)}"
        verdict: Verdict = "fails"
        if one.accounted is not None and other.accounted is not None:
            low, high = sorted((one.accounted, other.accounted))
            verdict = "holds" if high <= SAME * low else "fails"
        elif one.accounted is None and other.accounted is None:
            verdict = "undecided"
        return Outcome(verdict, text, guarantee_caveat(left) or guarantee_caveat(right))
