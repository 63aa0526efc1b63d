"""What is proven: a bound within the claim, or a trade-off curve, perhaps near that of Gaussian DP."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Annotated, Literal

from pydantic import Field

from pipeline.reporting.judging.claim_test import (
    Levels,
    OfOneLine,
    Outcome,
    Rows,
    guarantee_caveat,
    not_run,
)
from pipeline.reporting.judging.guarantees import gaussian_error
from pipeline.reporting.printed import PrintedTables
from pipeline.reporting.results import Cell
from pipeline.reporting.wording import bound, claim, downwards, level_words, number

ERROR = 0.1  # the type I error that a curve is told by


class OfLedgers(OfOneLine):
    """A test of each level's ledger."""

    at: Levels

    def ours(self, rows: Rows, paper: PrintedTables) -> Iterator[Outcome]:
        """By the ledger of each level's worst replica."""
        for level in self.at:
            title = f"{paper.lines[self.of].label} at {level_words(level)}"
            cell = rows[self.of].cell(level)
            yield (
                self.of_cell(title, cell, guarantee_caveat(rows[self.of].row(level)))
                if cell
                else not_run(title)
            )

    def of_cell(self, title: str, cell: Cell, caveat: str | None) -> Outcome:
        """The outcome at one level."""
        raise NotImplementedError


class Guaranteed(OfLedgers):
    """The accounted epsilon exists and is no larger than the claimed one, at each level of ``at``."""

    kind: Literal["guarantee"]

    def of_cell(self, title: str, cell: Cell, caveat: str | None) -> Outcome:
        """By the two epsilons."""
        guarantee = cell.guarantee
        text = f"{title}: claimed ε {claim(guarantee.ledger)}, proven {bound(guarantee.ledger)}"
        if guarantee.reason:
            text += f" ({guarantee.reason})"
        return Outcome("holds" if guarantee.kept else "fails", text, caveat)


class ProvenCurve(OfLedgers):
    """The least type II error of any attack on what ran is proven at every type I error, at each level.

    With ``near_gaussian`` the curve must also be nowhere further than that from G_mu, up or down.
    """

    kind: Literal["proven_curve"]
    near_gaussian: Annotated[float, Field(gt=0)] | None = None  # type II error

    def of_cell(self, title: str, cell: Cell, caveat: str | None) -> Outcome:
        """By the points of the curve, however little it protects."""
        curve, mu = cell.guarantee.ledger.tradeoff, cell.guarantee.ledger.mu
        if not curve or cell.guarantee.state == "none_proven":
            return Outcome("fails", f"{title}: no curve is proven ({cell.guarantee.reason})", caveat)
        if self.near_gaussian is None:
            beta = downwards(between(curve, ERROR))
            text = f"{title}: proven, a type II error of {beta} at type I {number(ERROR)}"
            return Outcome("holds", text, caveat)
        if mu is None:
            return Outcome("undecided", f"{title}: no μ to compare", caveat)
        away = max((beta - gaussian_error(alpha, mu) for alpha, beta in curve), key=abs)
        side = "above" if away > 0 else "below"
        within = number(self.near_gaussian)
        text = f"{title}: up to {number(abs(away))} {side} G_{mu:.3g}, to be within {within}"
        return Outcome("holds" if abs(away) <= self.near_gaussian else "fails", text, caveat)


def between(curve: tuple[tuple[float, float], ...], alpha: float) -> float:
    """The type II error at a type I error; straight lines join the points of a trade-off curve."""
    points = sorted(curve)
    for (left, high), (right, low) in pairwise(points):
        if left <= alpha <= right:
            return high if right == left else high + (low - high) * (alpha - left) / (right - left)
    return points[-1][1]
