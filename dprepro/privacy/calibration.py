"""Noise calibration by the tightest proven bound, for any sampling, with few evaluations of this bound.

Trainings use `dprepro.privacy.accounting.noise_for` instead, because recorded results depend on the last
digit of their noise.
"""

from collections.abc import Callable
from math import exp, log

from dprepro.errors import UserError
from dprepro.privacy.accounting import describe, spent_epsilon
from dprepro.privacy.sampled_gaussian import SampledGaussian
from dprepro.privacy.subsampling import LEAST_EPSILON, losses
from dprepro.rounding import rounded_up

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
    for _ in range(CHEAP_STEPS):
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
