"""Noise for a target epsilon.

`least_noise` uses the tightest proven bound, for any sampling, with few evaluations of this bound.
`noise_for` uses one accountant, for Poisson samples: recorded results depend on the last digit of its noise.
"""

from collections.abc import Callable
from functools import lru_cache, partial
from math import exp, log
from typing import Literal

import dp_accounting
from dp_accounting import (
    ComposedDpEvent,
    DpEvent,
    GaussianDpEvent,
    NeighboringRelation,
    PoissonSampledDpEvent,
    PrivacyAccountant,
    SelfComposedDpEvent,
)
from dp_accounting.pld import PLDAccountant

from dprepro.accountants.bounds import describe, spent_epsilon
from dprepro.accountants.pld import LEAST_EPSILON, MOST_AT_ONCE, ROUNDING, losses, pld_epsilon
from dprepro.accountants.rdp import rdp_epsilon
from dprepro.accountants.records import SampledGaussian, rounded_up
from dprepro.errors import UserError

Accountant = Literal["rdp", "pld"]
RELATION = NeighboringRelation.ADD_OR_REMOVE_ONE
COARSE = 1e-3  # interval of a coarse grid: ten times as fast as the default one, and also an upper bound
NEAR_ENOUGH = 0.995  # share of a target epsilon that a bound must reach

LEAST_NOISE, LARGEST_NOISE = 0.2, 1e9  # range of the search; losses of less noise take long
DIGITS = 5  # of the noise multiplier, rounded up
NEAR = 0.998  # smallest share of the target epsilon that the result has
CLOSED = 1.0005  # factor within which the bracket counts as closed
TINY = 1e-300  # in place of an epsilon of 0, for logarithms
# grids of the search: factor on the interval of the ledger's grid, and share of the target epsilon to reach
GRIDS = ((20.0, 0.98), (4.0, 0.99), (1.0, NEAR))
CHEAP_STEPS = 20  # bisections of the cheap bound
MOST_EVALUATIONS = 16  # of the bound on each grid


def proven_epsilon(spending: SampledGaussian, steps: int, delta: float, coarseness: float = 1.0) -> float:
    """Smallest proven upper bound on epsilon, as in the ledger; a ``coarseness`` above 1 is faster."""
    cheap = spent_epsilon(spending, steps, delta)
    grid = losses(spending, steps, delta, cheap, coarseness)
    return cheap if grid is None else min(cheap, grid.epsilon(delta))


def least_noise(
    epsilon: float, delta: float, steps: int, spending_at: Callable[[float], SampledGaussian]
) -> float:
    """Noise multiplier, of `DIGITS` digits, whose bound is between `NEAR` times ``epsilon`` and ``epsilon``.

    First, bisection with the cheap bounds, Renyi DP and the closed form, gives a sufficient multiplier. Then
    a secant method on logarithms, inside a bracket, lowers this multiplier. It uses the bound on coarse grids
    first, and at last on the ledger's grid.

    Args:
        epsilon: target, above 0.
        delta: delta of the guarantee.
        steps: number of steps.
        spending_at: mechanism at a noise multiplier.

    Returns:
        The noise multiplier.

    Raises:
        UserError: no allowed noise is enough, or `LEAST_NOISE` is more than enough.
    """

    def cheap(noise: float) -> float:
        return spent_epsilon(spending_at(noise), steps, delta)

    too_little, enough = LEAST_NOISE, 1.0
    while cheap(enough) > epsilon:
        too_little, enough = enough, 4 * enough
        if enough > LARGEST_NOISE:
            event = describe(spending_at(LARGEST_NOISE).event(steps))
            raise UserError(f"epsilon {epsilon:g} at delta {delta:g} can't be reached by {event}")
    # of several examples of a person there is no cheap bound
    for _ in range(0 if spending_at(enough).grouped else CHEAP_STEPS):
        middle = (too_little * enough) ** 0.5
        too_little, enough = (too_little, middle) if cheap(middle) <= epsilon else (middle, enough)
    slope = -1.0
    for coarseness, near in GRIDS if epsilon >= LEAST_EPSILON else GRIDS[-1:]:

        def bound(noise: float, coarseness: float = coarseness) -> float:
            return proven_epsilon(spending_at(noise), steps, delta, coarseness)

        enough, slope = _lowered(epsilon, enough, near, slope, bound)
    if enough <= LEAST_NOISE * (1 + 10 ** (1 - DIGITS)):
        event = describe(spending_at(LEAST_NOISE).event(steps))
        raise UserError(
            f"epsilon {epsilon:g} at delta {delta:g} is so loose for {event} that its noise keeps it "
            "already; lower it, or train with epsilon .inf"
        )
    return enough


def _lowered(
    epsilon: float, enough: float, near: float, slope: float, bound: Callable[[float], float]
) -> tuple[float, float]:
    """Noise multiplier whose ``bound`` is at most ``epsilon``, and near it (``near`` times) if possible.

    Args:
        epsilon: target.
        enough: a sufficient multiplier.
        near: share of the target that the bound should reach.
        slope: estimated slope of log epsilon as a function of log noise.
        bound: epsilon at a multiplier.

    Returns:
        The multiplier, at most ``enough``, and the slope there.
    """
    best = float(rounded_up(enough, DIGITS))
    spent, too_little = bound(best), LEAST_NOISE
    point = (log(best), log(max(spent, TINY)))
    for _ in range(MOST_EVALUATIONS):
        if spent >= near * epsilon or best <= LEAST_NOISE:
            break
        guess = exp(point[0] + (log((1 + near) / 2 * epsilon) - point[1]) / slope)
        guess = guess if too_little < guess < best else (too_little * best) ** 0.5
        noise = float(rounded_up(max(guess, LEAST_NOISE), DIGITS))
        if best <= CLOSED * too_little:
            break
        value = bound(noise)
        if value <= epsilon:
            best, spent = noise, value
        else:
            too_little = noise
        new = (log(noise), log(max(value, TINY)))
        slope = min((new[1] - point[1]) / (new[0] - point[0]), -1e-3)
        point = new
    return best, slope


@lru_cache(maxsize=256)
def noise_for(
    epsilon: float,
    delta: float,
    rate: float,
    steps: int,
    accountant: Accountant,
    first_release: float | None = None,
) -> float:
    """Noise multiplier that keeps a `poisson_gaussian` within epsilon, near the smallest such multiplier.

    The search ends within 0.2 % of the smallest, or within 0.001 of it below 1. 'pld' searches on a coarse
    grid first. If the result's epsilon on the fine grid is below `NEAR_ENOUGH` times the target, it searches
    again on the fine grid.

    Args:
        epsilon: target.
        delta: delta of the guarantee.
        rate: probability of Poisson sampling.
        steps: number of steps.
        accountant: accountant of the calibration.
        first_release: noise multiplier of an earlier release of all examples; None: there is none.

    Returns:
        The noise multiplier.

    Raises:
        UserError: a multiplier of 8,192 is not enough, or .2 is already enough; or 'pld' can't resolve the
            guarantee.
    """
    if accountant == "pld" and tightest(epsilon, delta, steps) != "pld":
        raise UserError(
            f"epsilon {epsilon:g} at delta {delta:g} after {steps} steps: 'pld' does not resolve it; "
            "allowed: accountant 'rdp'"
        )
    event_at = partial(poisson_gaussian, rate, steps=steps, first_release=first_release)
    if accountant == "rdp":
        return _calibrated(event_at, partial(_RdpByParts, RELATION), epsilon, delta, delta)
    remaining_delta = delta - ROUNDING * (steps + (first_release is not None))
    for interval in (COARSE, 1e-4):
        by_losses = partial(PLDAccountant, RELATION, value_discretization_interval=interval)
        multiplier = _calibrated(event_at, by_losses, epsilon, delta, remaining_delta)
        if pld_epsilon(event_at(multiplier), delta) >= NEAR_ENOUGH * epsilon:
            break
    return multiplier


def _calibrated(
    event_at: Callable[[float], DpEvent],
    accountant: Callable[[], PrivacyAccountant],
    epsilon: float,
    delta: float,
    remaining_delta: float,
) -> float:
    """Noise multiplier of an epsilon just below ``epsilon``; ``remaining_delta``: delta minus rounding."""
    # below .2 the PLD grows very large, and such a loose target needs no calibration
    low, high = 0.2, 1.0
    while accountant().compose(event_at(high)).get_epsilon(remaining_delta) > epsilon:
        low, high = high, 2 * high
        if high > 1e4:
            raise UserError(
                f"epsilon {epsilon} at delta {delta} can't be reached by {describe(event_at(low))}"
            )
    try:
        return float(
            dp_accounting.calibrate_dp_mechanism(
                accountant,
                event_at,
                epsilon,
                remaining_delta,
                dp_accounting.ExplicitBracketInterval(low, high),
                tol=1e-3 * high,
            )
        )
    except ValueError as problem:  # no sign change: the lower end of the bracket is enough already
        raise UserError(
            f"epsilon {epsilon} at delta {delta} is so loose for {describe(event_at(low))} that its noise "
            "keeps it already; lower it, or train with epsilon .inf"
        ) from problem


def poisson_gaussian(
    rate: float, noise_multiplier: float, steps: int, first_release: float | None = None
) -> DpEvent:
    """Event of ``steps`` Poisson-sampled Gaussian mechanisms, and of `SampledGaussian.first_release`."""
    sampled = SelfComposedDpEvent(PoissonSampledDpEvent(rate, GaussianDpEvent(noise_multiplier)), steps)
    return ComposedDpEvent([GaussianDpEvent(first_release), sampled]) if first_release else sampled


class _RdpByParts(PrivacyAccountant):
    """`rdp_epsilon` as an accountant, for dp-accounting's calibration."""

    def _maybe_compose(self, event: DpEvent, count: int, do_compose: bool) -> None:
        """Do nothing: `get_epsilon` uses the accountant's ledger of events."""

    def get_epsilon(self, target_delta: float) -> float:
        """Epsilon of the composed event."""
        return rdp_epsilon(self.ledger, target_delta)


def tightest(epsilon: float, delta: float, steps: int) -> Accountant:
    """Accountant 'pld', whose bound is smaller, if it can resolve such a guarantee; otherwise 'rdp'."""
    resolved = epsilon >= LEAST_EPSILON and steps <= MOST_AT_ONCE and delta > 2 * ROUNDING * (steps + 1)
    return "pld" if resolved else "rdp"
