"""A second library's epsilons, Opacus's, which it has of Poisson samples only."""

from collections.abc import Iterator

from pipeline.ledgers.accountants import library
from pipeline.privacy.accounting import opacus_prv, opacus_rdp
from pipeline.privacy.sampled_gaussian import SampledGaussian
from pipeline.results.schema import AccountantEpsilon

SLOW_IMPORT = True  # Opacus imports torch
# beyond which Opacus's PRV accountant takes minutes and ends at infinity
PRV_LARGEST = 1e2
# whose grid is the finer the more steps there are, and whose transforms carry no smaller delta
PRV_MOST_STEPS, PRV_LEAST_DELTA = 1_000_000, 1e-10


def epsilons(
    spending: SampledGaussian, steps: int, delta: float, least: float
) -> Iterator[AccountantEpsilon]:
    """By Renyi DP, and by numerical composition (Gopi et al. 2021) where ``least`` isn't too large for it."""
    if spending.sampling != "poisson":
        return
    numbers = (spending.rate, spending.noise_multiplier, steps, delta, spending.first_release)
    opacus = library("opacus")
    # at a delta of a half, say, it lands below 0, and what is true there is true at 0
    yield AccountantEpsilon(accountant=f"rdp ({opacus})", epsilon=max(0.0, opacus_rdp(*numbers)))
    name = f"prv ({opacus})"
    if least > PRV_LARGEST or steps > PRV_MOST_STEPS or delta < PRV_LEAST_DELTA:
        limit = f"{PRV_MOST_STEPS:,} steps or a delta of {PRV_LEAST_DELTA:g}"
        if least > PRV_LARGEST:
            limit = f"an epsilon of {PRV_LARGEST:g}"
        yield AccountantEpsilon(accountant=name, epsilon=None, note=f"not computed beyond {limit}")
        return
    try:
        epsilon, error = opacus_prv(*numbers)
    except ValueError as problem:
        yield AccountantEpsilon(accountant=name, epsilon=None, note=str(problem))
    else:
        yield AccountantEpsilon(
            accountant=name, epsilon=max(0.0, epsilon), note=f"upper end; error bound {error}"
        )
