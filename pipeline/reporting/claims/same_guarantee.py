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
from pipeline.reporting.judging.guarantees import incomparable
from pipeline.reporting.printed import PrintedTables
from pipeline.reporting.results import RowResult
from pipeline.reporting.wording import bound, level_words

# Accountants differ in their grids: two bounds that are no further apart are taken for the same
SAME = 1.01


def _of_other_data(left: RowResult | None, right: RowResult | None) -> str | None:
    sets = [row.record.data for row in (left, right) if row and row.record]
    return f"data sets {' and '.join(sets)}" if len(set(sets)) > 1 else None


class SameGuarantee(OfTwoLines):
    """``left`` and ``right`` are proven the same epsilon, at each level of ``at``."""

    kind: Literal["same_guarantee"]
    at: Levels

    def ours(self, rows: Rows, paper: PrintedTables) -> Iterator[Outcome]:
        """By the bounds of both ledgers, to one percent; undecided where epsilons are of different things."""
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
        caveat = guarantee_caveat(left) or guarantee_caveat(right)
        why = incomparable(one, other) or _of_other_data(left, right)
        if why or one.accounted is None or other.accounted is None:
            return Outcome("undecided", f"{text}; not comparable: {why}", caveat)
        low, high = sorted((one.accounted, other.accounted))
        verdict: Verdict = "holds" if high <= SAME * low else "fails"
        return Outcome(verdict, text, caveat)
