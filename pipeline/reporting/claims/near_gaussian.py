"""A proven trade-off curve beside that of Gaussian DP, which is claimed to be near."""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from pipeline.reporting.judging.claim_test import (
    Levels,
    OfOneLine,
    Outcome,
    Rows,
    cell_of,
    guarantee_caveat,
    not_run,
)
from pipeline.reporting.judging.guarantees import gaussian_error
from pipeline.reporting.printed import PrintedTables
from pipeline.reporting.results import Cell
from pipeline.reporting.wording import level_words, number


class NearGaussian(OfOneLine):
    """The proven trade-off curve is nowhere further than ``within`` from G_mu, up or down, at each level."""

    kind: Literal["near_gaussian"]
    at: Levels
    within: Annotated[float, Field(gt=0)]  # type II error

    def ours(self, rows: Rows, paper: PrintedTables) -> Iterator[Outcome]:
        """By the points of each level's curve."""
        for level in self.at:
            title = f"{paper.lines[self.of].label} at {level_words(level)}"
            cell = cell_of(rows[self.of], level)
            yield self._ours(title, cell, guarantee_caveat(rows[self.of])) if cell else not_run(title)

    def _ours(self, title: str, cell: Cell, caveat: str | None) -> Outcome:
        mu, curve = cell.guarantee.ledger.mu, cell.guarantee.ledger.tradeoff
        if mu is None or not curve or cell.guarantee.state == "broken":
            return Outcome("undecided", f"{title}: no curve or no μ to compare", caveat)
        away = max((beta - gaussian_error(alpha, mu) for alpha, beta in curve), key=abs)
        side = "above" if away > 0 else "below"
        text = f"{title}: up to {number(abs(away))} {side} G_{mu:.3g}, to be within {number(self.within)}"
        return Outcome("holds" if abs(away) <= self.within else "fails", text, caveat)
