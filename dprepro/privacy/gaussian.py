"""Gaussian mechanism in closed form: mu-GDP, N(0, 1) against N(mu, 1) (Dong, Roth and Su 2022)."""

from collections.abc import Callable

import numpy as np
from scipy.special import erfcx, ndtr

# privacy profile of a mechanism: delta at each epsilon
Profile = Callable[[np.ndarray], np.ndarray]
# relative excess of `least_epsilon` over the exact value, at most
PRECISION = 1e-9


def gaussian_delta(epsilons: np.ndarray, mu: np.ndarray) -> np.ndarray:
    """Delta of mu-GDP at each epsilon >= 0 (Balle and Wang 2018, Theorem 8).

    It is Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu), with Phi the standard normal
    distribution function. The second term is computed from the density at the first term's argument, so that
    nothing overflows at an epsilon of millions.

    Args:
        epsilons: any shape.
        mu: any shape that broadcasts with ``epsilons``.

    Returns:
        Deltas in the common shape.
    """
    epsilons, mu = np.broadcast_arrays(np.asarray(epsilons, float), np.asarray(mu, float))
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        lower, upper = epsilons / mu - mu / 2, epsilons / mu + mu / 2
        second = 0.5 * np.exp(-(lower**2) / 2) * erfcx(upper / np.sqrt(2))
        delta = np.maximum(ndtr(-lower) - second, 0.0)
    # at mu = 0 both distributions are equal
    return np.where(mu == 0, 0.0, delta)


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Epsilon of mu-GDP at ``delta``, rounded up within `PRECISION`."""
    return least_epsilon(lambda epsilons: gaussian_delta(epsilons, np.asarray(mu)), delta)


def least_epsilon(profile: Profile, delta: float) -> float:
    """Smallest epsilon whose delta is at most ``delta``, rounded up within `PRECISION`.

    Args:
        profile: delta at each epsilon; it must not increase.
        delta: delta of the guarantee.

    Returns:
        The epsilon; infinity if there is none.
    """

    def is_enough(epsilon: float) -> bool:
        return bool(profile(np.array([epsilon]))[0] <= delta)

    if is_enough(0.0):
        return 0.0
    low, high = 0.0, 1.0
    while not is_enough(high):
        low, high = high, 2 * high
        if not np.isfinite(high):
            return float("inf")
    while high - low > PRECISION * high:
        middle = (low + high) / 2
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return high
