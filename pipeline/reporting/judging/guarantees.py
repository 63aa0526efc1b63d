"""Guarantee of a level: verdict on its claimed epsilon by its ledger, with the reason."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import log
from typing import Literal

from scipy.special import ndtr, ndtri

from dprepro.pipeline.reporting.vocabulary import joined, words
from dprepro.pipeline.results.schema import Ledger, Replica
from dprepro.rounding import up

# Largest ratio of a bound to a claim that may come from float32 rounding alone, such as of noise scales.
ROUNDING = 1 + 1e-6

# Bounds within one percent count as equal: accountants differ in their grids, and noise is calibrated to a
# thousandth.
SAME = 1.01

# A bound above `VACUOUS` is vacuous. By alpha + e^epsilon beta >= 1, an epsilon allows an attacker on two
# neighbouring data sets to have both errors, alpha and beta, at 1 / (1 + e^epsilon).
ERROR = 1e-6
VACUOUS = log(1 / ERROR - 1)
VACUOUS_REASON = (
    f"a bound above ε = {VACUOUS:.1f} alone does not rule out an attacker who distinguishes two neighbouring "
    "data sets with both kinds of error below one in a million"
)
WEAKER_REASON = "the upper bound on ε is above the claimed ε, but the computed lower bound is not"
ROUNDED_REASON = "the upper bound on ε is above the claimed ε by float32 rounding alone"
EXCEEDS_REASON = "the computed lower bound is above the claimed ε; it is {}"

State = Literal["holds", "weaker", "exceeds", "vacuous", "none_proven", "huge", "none"]


@dataclass(frozen=True)
class Guarantee:
    """Verdict on the claimed epsilon of one level of a row."""

    state: State
    reason: str | None  # why it is neither 'holds' nor 'none', or holds with a bound above the claim
    ledger: Ledger  # of the level's worst replica
    within_claim: bool = False  # the proven epsilon is at most the claimed one, even if vacuous

    @property
    def rests_on_trials(self) -> bool:
        """Return True if there is a bound, and tests are the only evidence for independent gradients."""
        ledger = self.ledger
        if ledger.epsilon_upper is None or ledger.releases or ledger.event is None:
            return False
        return ledger.isolation in (None, "tried")


def guarantee(replicas: Sequence[Replica], reproducible: bool) -> Guarantee:
    """Verdict on a level, by its worst replica; ``reproducible`` is True if the noise was seeded.

    ``none``: no epsilon is claimed. ``huge``: the claimed epsilon is too large for a float. ``holds``: the
    proven epsilon is at most the claimed one. ``weaker``: the proven epsilon is above the claimed one, which
    may still hold. ``exceeds``: the computed lower bound is above the claimed epsilon. ``vacuous``: every
    proven epsilon is above `VACUOUS`. ``none_proven``: an epsilon is claimed, but there is no bound or the
    noise was seeded.
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
    within = is_within(ledger.epsilon_upper, ledger.claimed)
    if exceeds(ledger):
        why = EXCEEDS_REASON.format(words(ledger.epsilon_lower_by) if ledger.epsilon_lower_by else "")
        return Guarantee("exceeds", why, ledger, within)
    if _least(ledger, ledger.epsilon_upper) > VACUOUS:
        return Guarantee("vacuous", VACUOUS_REASON, ledger, within)
    if within:
        above = ledger.epsilon_upper > ledger.claimed
        return Guarantee("holds", ROUNDED_REASON if above else None, ledger, within)
    return Guarantee("weaker", WEAKER_REASON, ledger, within)


def is_within(epsilon_upper: float, claimed: float) -> bool:
    """Return True if a bound is at most the claim, apart from float32 rounding.

    Ledgers have bounds rounded up, so the smallest excess is one unit of the last digit.
    """
    return epsilon_upper <= up(ROUNDING * claimed)


def worst(ledgers: Iterable[Ledger]) -> Ledger:
    """The ledger with the weakest guarantee."""
    return max(ledgers, key=_badness)


def incomparable(left: Ledger, right: Ledger) -> str | None:
    """Reason why the epsilons of two ledgers are not comparable; None if they are.

    Proven epsilons are comparable if they hold for the same kind of neighbours and the same delta.
    """
    if left.epsilon_upper is None or right.epsilon_upper is None:
        return "no epsilon is proven"
    if left.neighbouring is not right.neighbouring:
        return f"neighbours {left.neighbouring} and {right.neighbouring}"
    return None if left.delta == right.delta else f"delta {left.delta} and {right.delta}"


def exceeds(ledger: Ledger) -> bool:
    """Return True if a computed lower bound is above the claimed epsilon."""
    return (
        ledger.claimed is not None
        and ledger.epsilon_lower is not None
        and ledger.epsilon_lower > ROUNDING * ledger.claimed
    )


def _badness(ledger: Ledger) -> tuple[bool, float]:
    """Sort key of a ledger, larger if privacy is weaker; a claim without a bound is weaker than any bound."""
    unbounded = ledger.epsilon_upper is None and ledger.claimed is not None
    return unbounded, ledger.epsilon_upper if ledger.epsilon_upper is not None else 0.0


def _least(ledger: Ledger, epsilon_upper: float) -> float:
    """Smallest proven epsilon: ``epsilon_upper``, or for single releases an accountant's epsilon at a delta.

    With an epsilon at a delta, one of an attacker's error rates is at least (1 - delta) / (1 + e^epsilon).
    """
    others = ledger.accountants if ledger.releases else ()
    return min([epsilon_upper, *(result.epsilon for result in others if result.epsilon is not None)])


def gaussian_error(alpha: float, mu: float) -> float:
    """Type II error Phi(Phi^-1(1 - alpha) - mu) at type I error alpha (G_mu: Dong et al. 2019, Eq. 6)."""
    return float(ndtr(ndtri(1 - alpha) - mu))
