"""A second library's epsilons, Opacus's, which it has of Poisson samples only."""

from collections.abc import Iterator

from pipeline.ledgers.opinions import library
from pipeline.privacy.accounting import opacus_prv, opacus_rdp
from pipeline.privacy.spending import Spending
from pipeline.results.records import Opinion

# beyond which Opacus's PRV accountant takes minutes and ends at infinity
PRV_LARGEST = 1e2


def opinions(spending: Spending, steps: int, delta: float, least: float) -> Iterator[Opinion]:
    """By Renyi DP, and by numerical composition (Gopi et al. 2021) where ``least`` isn't too large for it."""
    if spending.sampling != "poisson":
        return
    numbers = (spending.rate, spending.noise_multiplier, steps, delta)
    opacus = library("opacus")
    # at a delta of a half, say, it lands below 0, and what is true there is true at 0
    yield Opinion(accountant=f"rdp ({opacus})", epsilon=max(0.0, opacus_rdp(*numbers)))
    name = f"prv ({opacus})"
    if least > PRV_LARGEST:
        yield Opinion(
            accountant=name, epsilon=None, note=f"not computed beyond an epsilon of {PRV_LARGEST:g}"
        )
        return
    try:
        epsilon, error = opacus_prv(*numbers)
    except ValueError as problem:
        yield Opinion(accountant=name, epsilon=None, note=str(problem))
    else:
        yield Opinion(accountant=name, epsilon=max(0.0, epsilon), note=f"upper end; error bound {error}")
