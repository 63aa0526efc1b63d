"""Renyi divergences of the Poisson-sampled Gaussian mechanism, where dp-accounting has no good ones.

dp-accounting computes whole orders by a finite sum, 1 plus a multiple of the divergence. So it loses the
digits of a divergence below about 1e-15, and may even be negative. At fractional orders it adds the absolute
values of an alternating series. This is an upper bound, but tens of percent too large below order 2, where
trainings with an epsilon of hundreds have their minimum.
"""

from math import factorial, log, log1p, pi, sqrt

import numpy as np
from scipy.special import logsumexp
from scipy.stats import binom

# ends of the integral, in standard deviations beyond the outermost means: densities there are e^-72
REACH = 12.0
LARGE_POWER = 30.0  # exponent far below overflow and far above cancellation
TINY_POWER = 1e-3  # exponent below which differences of exponentials are computed by their series


def sampled_gaussian(rate: float, noise_multiplier: float, orders: np.ndarray) -> np.ndarray:
    """Renyi divergences of one step of the Poisson-sampled Gaussian mechanism.

    The divergence is log(A) / (order - 1) with A = E[r(x)^order] for x ~ N(0, z^2) and r(x) = 1 - q +
    q e^((2 x - 1) / (2 z^2)). It covers adding and removing an example (Mironov, Talwar and Zhang 2019,
    section 3.3). Because E[r] = 1, A - 1 is the mean of r^order - 1 - order (r - 1). This is nowhere
    negative, so no digits cancel.

    Args:
        rate: q of Poisson sampling, 0 < q < 1.
        noise_multiplier: z.
        orders: (K,) above 1.

    Returns:
        (K,) divergences.
    """
    # a trapezoidal sum has the error e^(-2 pi a / step) if the integrand is analytic up to a distance a from
    # the real line; here a is pi z^2, where r is 0
    step = noise_multiplier * min(1 / 8, noise_multiplier / 4)
    points = np.arange(-REACH * noise_multiplier, max(orders) + REACH * noise_multiplier, step)
    ratio = np.logaddexp(log1p(-rate), log(rate) + (2 * points - 1) / (2 * noise_multiplier**2))
    weights = -(points**2) / (2 * noise_multiplier**2) + log(step / (noise_multiplier * sqrt(2 * pi)))
    logarithms = [logsumexp(_excess(ratio, order) + weights) for order in orders]
    return np.logaddexp(0.0, logarithms) / (np.asarray(orders) - 1)


def sampled_gaussian_whole(rate: float, noise_multiplier: float, orders: np.ndarray) -> np.ndarray:
    """Renyi divergences as in `sampled_gaussian`, at whole orders.

    With A as there, A - 1 is the mean of e^(k (k - 1) / (2 z^2)) - 1 over a binomial number k of ``order``
    trials with probability q (Mironov, Talwar and Zhang 2019, section 3.3). No term is negative, so no digits
    cancel.

    Args:
        rate: q of Poisson sampling, 0 < q < 1.
        noise_multiplier: z.
        orders: (K,) whole numbers above 1.

    Returns:
        (K,) divergences.
    """
    logarithms = []
    for order in orders:
        counts = np.arange(2, int(order) + 1)
        powers = counts * (counts - 1) / (2 * noise_multiplier**2)
        terms = binom.logpmf(counts, int(order), rate) + powers + np.log(-np.expm1(-powers))
        logarithms.append(logsumexp(terms))
    return np.logaddexp(0.0, logarithms) / (np.asarray(orders) - 1)


def _excess(ratio: np.ndarray, order: float) -> np.ndarray:
    """Logarithm of r^order - 1 - order (r - 1), r as in `sampled_gaussian`, from ``ratio`` = log(r)."""
    powers = order * ratio
    small = powers < LARGE_POWER
    small_ratio, large_ratio = ratio[small], ratio[~small]
    excess = np.empty_like(ratio)
    with np.errstate(divide="ignore"):
        excess[small] = np.log(np.maximum(np.expm1(order * small_ratio) - order * np.expm1(small_ratio), 0.0))
    tiny = np.abs(powers) < TINY_POWER
    series = [(order**power - order) * ratio[tiny] ** power / factorial(power) for power in range(2, 6)]
    with np.errstate(divide="ignore"):
        excess[tiny] = np.log(np.sum(series, axis=0))
    excess[~small] = order * large_ratio + np.log1p(
        (order - 1) * np.exp(-order * large_ratio) - order * np.exp((1 - order) * large_ratio)
    )
    return excess
