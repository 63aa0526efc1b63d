"""Epsilons of a second library, Opacus, for Poisson samples only."""

from collections.abc import Iterator

from dprepro.pipeline.ledgers.accountants import library
from dprepro.pipeline.results.schema import AccountantEpsilon
from dprepro.privacy.accounting import opacus_prv, opacus_rdp
from dprepro.privacy.sampled_gaussian import SampledGaussian

SLOW_IMPORT = True  # Opacus imports torch
# largest epsilon for Opacus's PRV accountant; above, the accountant takes minutes and returns infinity
PRV_LARGEST = 1e2
# most steps, because the accountant's grid gets finer with more; smallest delta that its transforms resolve
PRV_MOST_STEPS, PRV_LEAST_DELTA = 1_000_000, 1e-10


def epsilons(
    spending: SampledGaussian, steps: int, delta: float, least: float
) -> Iterator[AccountantEpsilon]:
    """Yield Opacus's epsilons for Poisson samples: by Renyi DP, and by PRV (Gopi et al. 2021).

    PRV takes too long if ``least`` (a proven epsilon) is large; then it has a note and no epsilon.
    """
    if spending.sampling != "poisson":
        return
    numbers = (spending.rate, spending.noise_multiplier, steps, delta, spending.first_release)
    opacus = library("opacus")
    # at a large delta, such as .5, Opacus returns a negative epsilon; then 0 is a bound too
    yield AccountantEpsilon(accountant=f"rdp ({opacus})", epsilon=max(0.0, opacus_rdp(*numbers)))
    name = f"prv ({opacus})"
    if least > PRV_LARGEST or steps > PRV_MOST_STEPS or delta < PRV_LEAST_DELTA:
        limit = f"above {PRV_MOST_STEPS:,} steps or below a delta of {PRV_LEAST_DELTA:g}"
        if least > PRV_LARGEST:
            limit = f"above an epsilon of {PRV_LARGEST:g}"
        yield AccountantEpsilon(accountant=name, epsilon=None, note=f"not computed {limit}")
        return
    try:
        epsilon, error = opacus_prv(*numbers)
    except ValueError as problem:
        yield AccountantEpsilon(accountant=name, epsilon=None, note=str(problem))
    else:
        yield AccountantEpsilon(
            accountant=name,
            epsilon=max(0.0, epsilon),
            note=f"upper end of an interval of half-width {error}",
        )
