"""Claims on ledgers: a proven ε up to the claimed ε, equal or distant bounds, or a trade-off curve."""

from collections.abc import Sequence
from math import inf
from typing import Annotated, Literal

from pydantic import Field

from dprepro.errors import UserError
from dprepro.pipeline.reporting.judging.claim_test import (
    AtLevels,
    Outcome,
    Reference,
    Verdict,
    guarantee_caveat,
    not_run,
)
from dprepro.pipeline.reporting.judging.guarantees import (
    SAME,
    Guarantee,
    gaussian_error,
    incomparable,
    is_within,
)
from dprepro.pipeline.reporting.printed import PrintedTables
from dprepro.pipeline.reporting.results import RowResult
from dprepro.pipeline.reporting.wording import bound, claim, downwards, level_words, number, upwards
from dprepro.pipeline.results.schema import Ledger


class Guaranteed(AtLevels):
    """There is a proven epsilon, and it is at most the claimed one, at each level of ``at``.

    An upper bound above the claimed epsilon leaves the claim undecided, unless a lower bound is above it too.
    ``release`` may name a quantity that the mechanism releases once. Then the proven epsilon of this release
    is compared with the epsilon that the paper claims for this release. Epsilons of Laplace noise on single
    examples are exact, so a larger one refutes the claim. So does a release without a bound: one draw for all
    examples leaves the differences between examples unchanged.
    """

    kind: Literal["guarantee"]
    of: Reference
    release: str | None = None

    def judge(self, title: str, level: str, rows: Sequence[RowResult], paper: PrintedTables) -> Outcome:
        """Judge by the claimed and the proven epsilon of the level's worst replica."""
        guarantee = rows[0].cells[level].guarantee
        if self.release is not None:
            verdict, text = _of_release(self.release, guarantee, title)
            return Outcome(verdict, text, guarantee_caveat(*rows))
        text = f"{title}: claimed ε {claim(guarantee.ledger)}, {bound(guarantee.ledger)}"
        if guarantee.reason:
            text += f" ({guarantee.reason})"
        claimed, upper = guarantee.ledger.claimed, guarantee.ledger.epsilon_upper
        if guarantee.state == "weaker" and claimed is not None and upper is not None:
            text += f"; before rounding, the upper bound exceeds the claimed ε by {upwards(upper - claimed)}"
        # an upper bound above the claim does not refute it
        is_open = claimed is None or guarantee.state in ("weaker", "vacuous")
        verdict = "holds" if guarantee.within_claim else "undecided" if is_open else "fails"
        return Outcome(verdict, text, guarantee_caveat(*rows))


def _of_release(quantity: str, guarantee: Guarantee, title: str) -> tuple[Verdict, str]:
    """Verdict on one release of a mechanism, and its claimed and proven epsilon in words."""
    released = next((part for part in guarantee.ledger.releases if part.quantity == quantity), None)
    if released is None:
        quantities = ", ".join(part.quantity for part in guarantee.ledger.releases) or "none"
        raise UserError(f"{title}: release: {quantity}; allowed: {quantities}")
    share, accounted = released.claimed, released.epsilon_upper
    spent = "no bound" if accounted is None else f"ε ≤ {upwards(accounted)}"
    within = guarantee.state != "none_proven" and accounted is not None and is_within(accounted, share)
    return "holds" if within else "fails", f"{title}, {quantity} alone: claimed ε {upwards(share)}, {spent}"


class SameGuarantee(AtLevels):
    """``left`` and ``right`` have the same proven epsilon, at each level of ``at``.

    The test fails only if a computed lower bound is above the other line's upper bound. Different upper
    bounds alone don't show different guarantees, so they leave the test undecided.
    """

    kind: Literal["same_guarantee"]
    left: Reference
    right: Reference

    def judge(self, title: str, level: str, rows: Sequence[RowResult], paper: PrintedTables) -> Outcome:
        """Judge whether the bounds are equal up to a factor `SAME`; 'undecided' if they can't be compared."""
        left, right = (row.cells[level].guarantee.ledger for row in rows)
        text = f"{title}: proven {bound(left)} and {bound(right)}"
        sets = [row.record.data for row in rows if row.record]
        other_data = f"data sets {' and '.join(sets)}" if len(set(sets)) > 1 else None
        why = incomparable(left, right) or other_data
        if why or left.epsilon_upper is None or right.epsilon_upper is None:
            return Outcome("undecided", f"{text}; not comparable: {why}", guarantee_caveat(*rows))
        low, high = sorted((left.epsilon_upper, right.epsilon_upper))
        lower = max(left.epsilon_lower or 0.0, right.epsilon_lower or 0.0)
        verdict: Verdict = "holds" if high <= SAME * low else "fails" if lower > low else "undecided"
        return Outcome(verdict, text, guarantee_caveat(*rows))


class BoundsApart(AtLevels):
    """Epsilon at a level is more than ``above`` times epsilon at ``right_at``, by any analysis.

    The test holds if the computed lower bound at the level is that much larger than the upper bound at
    ``right_at``. It fails if the upper bound at the level is not that much larger than the lower bound at
    ``right_at``. Otherwise it is undecided.
    """

    kind: Literal["bounds_apart"]
    of: Reference
    right_at: str
    above: Annotated[float, Field(gt=0)]

    def judge(self, title: str, level: str, rows: Sequence[RowResult], paper: PrintedTables) -> Outcome:
        """Judge by the bounds of both levels' worst replicas."""
        if self.right_at not in rows[0].cells:
            return not_run(title)
        left, right = (rows[0].cells[each].guarantee.ledger for each in (level, self.right_at))
        bounds = [f"{_at_least(ledger)} and {bound(ledger)}" for ledger in (left, right)]
        text = f"{title}: {bounds[0]}; at {level_words(self.right_at)}: {bounds[1]}"
        text += f"; required: more than {number(self.above)} times as much"
        holds = (left.epsilon_lower or 0.0) > self.above * (right.epsilon_upper or inf)
        fails = (left.epsilon_upper or inf) <= self.above * (right.epsilon_lower or 0.0)
        verdict: Verdict = "holds" if holds else "fails" if fails else "undecided"
        return Outcome(verdict, text, guarantee_caveat(*rows))


def _at_least(ledger: Ledger) -> str:
    return "no lower bound" if ledger.epsilon_lower is None else f"ε ≥ {downwards(ledger.epsilon_lower)}"


class ProvenCurve(AtLevels):
    """At every point, the proven trade-off curve is within ``near_gaussian`` of Gaussian DP's curve G_mu.

    The curve bounds the type II error of any attack from below, at each type I error.
    """

    kind: Literal["proven_curve"]
    of: Reference
    near_gaussian: Annotated[float, Field(gt=0)]  # in type II error

    def judge(self, title: str, level: str, rows: Sequence[RowResult], paper: PrintedTables) -> Outcome:
        """Judge by the points of the trade-off curve that is proven for the level's worst replica."""
        guarantee, caveat = rows[0].cells[level].guarantee, guarantee_caveat(*rows)
        curve, mu = guarantee.ledger.tradeoff, guarantee.ledger.mu
        if not curve or guarantee.state == "none_proven":
            return Outcome("fails", f"{title}: no curve is proven ({guarantee.reason})", caveat)
        if mu is None:
            return Outcome("undecided", f"{title}: no μ to compare", caveat)
        away = max((beta - gaussian_error(alpha, mu) for alpha, beta in curve), key=abs)
        side = "above" if away > 0 else "below"
        within = number(self.near_gaussian)
        apart = f"{number(abs(away))} ({side} it)"
        text = f"{title}: differs from G_{mu:.3g} by up to {apart}, required: at most {within}"
        return Outcome("holds" if abs(away) <= self.near_gaussian else "fails", text, caveat)
