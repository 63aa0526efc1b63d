"""Epsilons of a second library, Opacus, for Poisson samples only."""

import warnings
from collections.abc import Iterator
from functools import lru_cache

from dprepro.accountants.rdp import ORDERS
from dprepro.accountants.records import AccountantEpsilon, SampledGaussian, library

SLOW_IMPORT = ("rdp (opacus)", "prv (opacus)")  # names of these epsilons; Opacus imports torch
# largest epsilon for Opacus's PRV accountant; above, the accountant takes minutes and returns infinity
PRV_LARGEST = 1e2
PRV_ERROR = 0.01  # half-width of its interval
# most steps, because the accountant's grid gets finer with more; smallest delta that its transforms resolve
PRV_MOST_STEPS, PRV_LEAST_DELTA = 1_000_000, 1e-10
PRV_MOST_POINTS = 6_000_000  # of its grid; a point takes a microsecond and up to 160 bytes


def epsilons(
    spending: SampledGaussian, steps: int, delta: float, least: float
) -> Iterator[AccountantEpsilon]:
    """Yield Opacus's epsilons for Poisson samples: by Renyi DP, and by PRV (Gopi et al. 2021).

    PRV takes too long if ``least`` (a proven epsilon) is large; then it has a note and no epsilon.
    """
    if spending.sampling != "poisson" or spending.grouped:
        return
    numbers = (spending.rate, spending.noise_multiplier, steps, delta, spending.first_release)
    opacus = library("opacus")
    # at a large delta, such as .5, Opacus returns a negative epsilon; then 0 is a bound too
    yield AccountantEpsilon(accountant=f"rdp ({opacus})", epsilon=max(0.0, opacus_rdp(*numbers)))
    epsilon: float | None = None
    note = f"upper end of an interval of half-width {PRV_ERROR}"
    if least > PRV_LARGEST:
        note = f"not computed above an epsilon of {PRV_LARGEST:g}"
    elif steps > PRV_MOST_STEPS or delta < PRV_LEAST_DELTA:
        note = f"not computed above {PRV_MOST_STEPS:,} steps or below a delta of {PRV_LEAST_DELTA:g}"
    else:
        try:
            epsilon = max(0.0, opacus_prv(*numbers))
        except ValueError as problem:
            note = str(problem)
    yield AccountantEpsilon(accountant=f"prv ({opacus})", epsilon=epsilon, note=note)


@lru_cache(maxsize=256)  # a call takes half a second
def opacus_rdp(
    rate: float, noise_multiplier: float, steps: int, delta: float, first_release: float | None = None
) -> float:
    """Epsilon of `poisson_gaussian` by Opacus's RDP accountant."""
    from opacus.accountants import RDPAccountant

    accountant = RDPAccountant()
    accountant.history = _history(rate, noise_multiplier, steps, first_release)
    with warnings.catch_warnings():
        # Opacus warns if the best order is the smallest, as at an epsilon of hundreds
        warnings.simplefilter("ignore")
        return float(accountant.get_epsilon(delta, alphas=list(ORDERS)))


def _history(
    rate: float, noise_multiplier: float, steps: int, first_release: float | None
) -> list[tuple[float, float, int]]:
    """(noise multiplier, rate, steps) of each mechanism, in Opacus's format."""
    first = [(first_release, 1.0, 1)] if first_release else []
    return [*first, (noise_multiplier, rate, steps)]


@lru_cache(maxsize=256)
def opacus_prv(
    rate: float,
    noise_multiplier: float,
    steps: int,
    delta: float,
    first_release: float | None = None,
    error: float = PRV_ERROR,
) -> float:
    """Epsilon of `poisson_gaussian` by Opacus's PRV accountant (Gopi et al. 2021).

    Returns:
        An upper bound, at most 2 ``error`` too large.

    Raises:
        ValueError: the accountant fails, for example at a large epsilon.
    """
    from opacus.accountants import PRVAccountant
    from opacus.accountants.analysis.prv import PoissonSubsampledGaussianPRV

    accountant = PRVAccountant()
    accountant.history = _history(rate, noise_multiplier, steps, first_release)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            points = accountant._get_domain(
                prvs=[PoissonSubsampledGaussianPRV(share, noise) for noise, share, _ in accountant.history],
                num_self_compositions=[times for *_, times in accountant.history],
                eps_error=error,
                delta_error=delta / 1000,
            ).size
            if points > PRV_MOST_POINTS:
                raise ValueError(f"a grid of {points:.1e} points; computed: up to {PRV_MOST_POINTS:.1e}")
            return float(accountant.get_epsilon(delta, eps_error=error, delta_error=delta / 1000))
    except (ValueError, RuntimeError, MemoryError, IndexError) as problem:
        raise ValueError(f"PRV failed: {problem}") from problem
