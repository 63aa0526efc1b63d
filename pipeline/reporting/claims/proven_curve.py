"""A trade-off curve that is proven for what ran."""

from collections.abc import Iterator
from itertools import pairwise
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
from pipeline.reporting.results import Cell
from pipeline.reporting.wording import downwards, level_words, number

ERROR = 0.1  # the type I error that a curve is told by


class ProvenCurve(OfOneLine):
    """The least type II error of any attack on what ran is proven at every type I error, at each level."""

    kind: Literal["proven_curve"]
    at: Levels

    def ours(self, rows: Rows, paper: PrintedTables) -> Iterator[Outcome]:
        """By each level's ledger, however little its curve protects."""
        for level in self.at:
            title = f"{paper.lines[self.of].label} at {level_words(level)}"
            cell = cell_of(rows[self.of], level)
            yield _ours(title, cell, guarantee_caveat(rows[self.of])) if cell else not_run(title)


def _ours(title: str, cell: Cell, caveat: str | None) -> Outcome:
    curve = cell.guarantee.ledger.tradeoff
    if not curve or cell.guarantee.state == "broken":
        return Outcome("fails", f"{title}: no curve is proven ({cell.guarantee.reason})", caveat)
    beta = between(curve, ERROR)
    return Outcome(
        "holds", f"{title}: proven, a type II error of {downwards(beta)} at type I {number(ERROR)}", caveat
    )


def between(curve: tuple[tuple[float, float], ...], alpha: float) -> float:
    """The type II error at a type I error; straight lines join the points of a trade-off curve."""
    points = sorted(curve)
    for (left, high), (right, low) in pairwise(points):
        if left <= alpha <= right:
            return high if right == left else high + (low - high) * (alpha - left) / (right - left)
    return points[-1][1]
