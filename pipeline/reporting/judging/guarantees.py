"""Guarantee of a level: its ledger's verdict and reason."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import log
from statistics import NormalDist
from typing import Literal

from pipeline.privacy.sampled_gaussian import RELATION_WORDS
from pipeline.reporting.vocabulary import joined, words
from pipeline.results.schema import Ledger, Replica

# What a claim and its bound may be apart by the rounding of float32 numbers alone, such as scales of noise.
ROUNDING = 1 + 1e-6

# Bounds within one percent count as equal: accountants differ in their grids, and noise is calibrated to a
# thousandth.
SAME = 1.01

# A larger bound is vacuous. By alpha + e^epsilon beta >= 1, an epsilon allows an attacker on two neighbouring
# data sets to have both errors at 1 / (1 + e^epsilon).
ERROR = 1e-6
VACUOUS = log(1 / ERROR - 1)
VACUOUS_REASON = (
    f"a bound above ε = {VACUOUS:.1f} alone does not rule out an attacker who distinguishes two neighbouring "
    "data sets with both kinds of error below one in a million"
)
WEAKER_REASON = "the upper bound on ε is above the claimed ε, but the computed lower bound is not"
EXCEEDS_REASON = "the computed lower bound is above the claimed ε; it is {}"

NORMAL = NormalDist()

State = Literal["holds", "weaker", "exceeds", "vacuous", "none_proven", "huge", "none"]


@dataclass(frozen=True)
class Guarantee:
    """Verdict on one level of a row."""

    state: State
    reason: str | None  # why it is neither 'holds' nor 'none'
    ledger: Ledger  # the worst of the level's replicas
    within_claim: bool = False  # a bound is proven, no larger than the claim; also a vacuous one

    @property
    def claims(self) -> bool:
        """Return True if an epsilon is claimed that is not too large for a float."""
        return self.ledger.claimed is not None

    @property
    def rests_on_trials(self) -> bool:
        """Return True if trials alone show that a clipped gradient of the proof depends on one example."""
        ledger = self.ledger
        if ledger.epsilon_upper is None or ledger.releases or ledger.event is None:
            return False
        return ledger.isolation in (None, "tried")


def guarantee(replicas: Sequence[Replica], reproducible: bool) -> Guarantee:
    """Verdict on a level, by its worst replica.

    ``none``: no epsilon is claimed. ``huge``: the claimed epsilon is too large for a float. ``holds``: the
    proven epsilon is at most the claimed one. ``weaker``: the proven epsilon is above the claimed one, which
    may hold or not. ``exceeds``: the lower bound for a named pair of data sets is above the claimed epsilon.
    ``vacuous``: the proven epsilon is too large to protect a record. ``none_proven``: a claim without a
    bound, or seeded noise.
    """
    ledger = worst(replica.ledger for replica in replicas)
    if ledger.claimed is None:
        reason = joined(ledger.reasons)
        if ledger.claimed_by is None:
            return Guarantee("none", reason, ledger)
        return Guarantee("huge", reason or "the claimed ε is too large for a floating-point number", ledger)
    if ledger.epsilon_upper is None:
        return Guarantee("none_proven", joined(ledger.reasons) or "no bound is known", ledger)
    if reproducible:
        return Guarantee(
            "none_proven", "the noise is seeded, and an attacker with the seed can subtract it", ledger
        )
    within = ledger.epsilon_upper <= ROUNDING * ledger.claimed
    if exceeds(ledger):
        why = EXCEEDS_REASON.format(words(ledger.epsilon_lower_by) if ledger.epsilon_lower_by else "")
        return Guarantee("exceeds", why, ledger, within)
    if _least(ledger, ledger.epsilon_upper) > VACUOUS:
        return Guarantee("vacuous", VACUOUS_REASON, ledger, within)
    if within:
        return Guarantee("holds", None, ledger, within)
    return Guarantee("weaker", WEAKER_REASON, ledger, within)


def worst(ledgers: Iterable[Ledger]) -> Ledger:
    """The ledger with the weakest privacy."""
    return max(ledgers, key=_badness)


def incomparable(left: Ledger, right: Ledger) -> str | None:
    """Reason why the epsilons of two ledgers are not comparable; None if they are.

    An epsilon holds for its neighbours and its delta alone, and where nothing is proven there is none.
    """
    if left.epsilon_upper is None or right.epsilon_upper is None:
        return "no epsilon is proven"
    if left.neighbouring is not right.neighbouring:
        return f"neighbours {RELATION_WORDS[left.neighbouring]} and {RELATION_WORDS[right.neighbouring]}"
    return None if left.delta == right.delta else f"delta {left.delta} and {right.delta}"


def exceeds(ledger: Ledger) -> bool:
    """Return True if a computed lower bound is above the claimed epsilon."""
    return (
        ledger.claimed is not None
        and ledger.epsilon_lower is not None
        and ledger.epsilon_lower > ROUNDING * ledger.claimed
    )


def _badness(ledger: Ledger) -> tuple[bool, float]:
    """Larger is worse: a claim without a bound first, then the largest bound."""
    unbounded = ledger.epsilon_upper is None and ledger.claimed is not None
    return unbounded, ledger.epsilon_upper if ledger.epsilon_upper is not None else 0.0


def _least(ledger: Ledger, epsilon_upper: float) -> float:
    """The least epsilon proven. What is accounted of releases is pure; accountants give bounds at a delta.

    Such a bound protects as well: it keeps both errors above (1 - delta) / (1 + e^epsilon).
    """
    others = ledger.accountants if ledger.releases else ()
    return min([epsilon_upper, *(result.epsilon for result in others if result.epsilon is not None)])


def gaussian_error(alpha: float, mu: float) -> float:
    """G_mu(alpha) = Phi(Phi^-1(1 - alpha) - mu) (Dong et al. 2019, Eq. 6), with its limits at both ends."""
    if alpha <= 0 or alpha >= 1:
        return 1.0 if alpha <= 0 else 0.0
    return NORMAL.cdf(NORMAL.inv_cdf(1 - alpha) - mu)
