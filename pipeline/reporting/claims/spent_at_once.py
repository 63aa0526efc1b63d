"""A bound that training longer adds nothing to."""

from collections.abc import Iterator
from statistics import fmean
from typing import Literal

from pipeline.reporting import histories
from pipeline.reporting.judging.claim_test import (
    Levels,
    OfOneLine,
    Outcome,
    Rows,
    cell_of,
    guarantee_caveat,
    not_run,
)
from pipeline.reporting.judging.guarantees import ROUNDING
from pipeline.reporting.printed import PrintedTables
from pipeline.reporting.results import RowResult
from pipeline.reporting.wording import level_words, upwards


class SpentAtOnce(OfOneLine):
    """A bound is proven, and training longer adds nothing to it, at each level of ``at``."""

    kind: Literal["spent_at_once"]
    at: Levels

    def ours(self, rows: Rows, paper: PrintedTables) -> Iterator[Outcome]:
        """By epsilon at the first and at the last note of the history."""
        for level in self.at:
            yield self._ours(level, rows[self.of], paper)

    def _ours(self, level: str, row: RowResult | None, paper: PrintedTables) -> Outcome:
        title = f"{paper.lines[self.of].label} at {level_words(level)}"
        cell = cell_of(row, level)
        if row is None or cell is None:
            return not_run(title)
        if cell.guarantee.ledger.accounted is None:
            text = f"{title}: no bound ({cell.guarantee.reason})"
            return Outcome("fails", text, guarantee_caveat(row))
        spent = histories.spending(row.record).get(level, {}) if row.record else {}
        if not spent:
            return Outcome("undecided", f"{title}: its ledger has no ε by step", guarantee_caveat(row))
        first, last = (fmean(curve[place][1] for curve in spent.values()) for place in (0, -1))
        text = f"{title}: ε ≤ {upwards(first)} at the first note, {upwards(last)} at the last"
        return Outcome("holds" if last <= ROUNDING * first else "fails", text, guarantee_caveat(row))
