"""What a reader should take from a ledger: the privacy that a number really buys."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pipeline.records import Ledger, Replica

# An accountant other than the claim's may land this far above it by rounding alone.
SLACK = 1.01

State = Literal["holds", "weaker", "broken", "none"]


@dataclass(frozen=True)
class Guarantee:
    """The verdict on one level of a row."""

    state: State
    reason: str | None  # why it is 'weaker' or 'broken'
    ledger: Ledger  # the worst of the level's replicas


def guarantee(replicas: Sequence[Replica], reproducible: bool) -> Guarantee:
    """The verdict that holds for every one of a level's replicas.

    ``none``: nothing is claimed and nothing proven. ``holds``: a bound is proven, no larger than the claim.
    ``weaker``: a bound is proven, but larger than the claim. ``broken``: a claim without a bound, or seeded
    noise.
    """
    ledger = max((replica.ledger for replica in replicas), key=_badness)
    if ledger.claimed is None and ledger.accounted is None:
        return Guarantee("none", ledger.reason, ledger)
    if ledger.accounted is None:
        return Guarantee("broken", ledger.reason or "no bound is known", ledger)
    if reproducible:
        return Guarantee("broken", "the noise is seeded, so whoever knows the seed can take it away", ledger)
    if ledger.claimed is not None and ledger.accounted > SLACK * ledger.claimed:
        return Guarantee("weaker", "the mechanism as run spends more than is claimed", ledger)
    return Guarantee("holds", None, ledger)


def _badness(ledger: Ledger) -> tuple[bool, float]:
    """Larger is worse: a claim without a bound first, then the largest bound."""
    unbounded = ledger.accounted is None and ledger.claimed is not None
    return unbounded, ledger.accounted if ledger.accounted is not None else 0.0
