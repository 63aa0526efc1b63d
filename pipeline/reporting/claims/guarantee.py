"""A bound that is proven, and no larger than what is claimed."""

from collections.abc import Iterator
from typing import Literal

from pipeline.reporting.judging.claim_test import (
    Levels,
    OfOneLine,
    Outcome,
    Rows,
    cell_of,
    guarantee_caveat,
    not_run,
)
from pipeline.reporting.printed import PrintedTables
from pipeline.reporting.wording import bound, claim, level_words


class Guaranteed(OfOneLine):
    """The accounted epsilon exists and is no larger than the claimed one, at each level of ``at``."""

    kind: Literal["guarantee"]
    at: Levels

    def ours(self, rows: Rows, paper: PrintedTables) -> Iterator[Outcome]:
        """By each level's ledger."""
        for level in self.at:
            title = f"{paper.lines[self.of].label} at {level_words(level)}"
            cell = cell_of(rows[self.of], level)
            if cell is None:
                yield not_run(title)
                continue
            guarantee = cell.guarantee
            text = f"{title}: claimed ε {claim(guarantee.ledger)}, proven {bound(guarantee.ledger)}"
            if guarantee.reason:
                text += f" ({guarantee.reason})"
            yield Outcome("holds" if guarantee.kept else "fails", text, guarantee_caveat(rows[self.of]))
