"""What a training has spent so far, for whoever watches it."""

from pipeline.methods.base import Guarantee
from pipeline.privacy.accounting import spent_epsilon
from pipeline.privacy.laplace import Releases


def spent_so_far(guarantee: Guarantee, reproducible: bool, steps: int) -> float | None:
    """An upper bound on epsilon after ``steps`` steps, cheap to compute; None where nothing holds.

    ``reproducible``: the noise is seeded, and protects nobody.
    """
    if reproducible or guarantee.broken or guarantee.spending is None:
        return None
    if isinstance(guarantee.spending, Releases):
        return guarantee.spending.epsilon  # before the first step
    assert guarantee.delta is not None, "goes with the spending"
    return spent_epsilon(guarantee.spending, steps, guarantee.delta)
