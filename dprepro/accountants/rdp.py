"""Epsilon by Renyi DP, and the closed forms of Sander et al. 2022.

* Renyi DP (Mironov 2017; sampled Gaussian: Mironov et al. 2019; without replacement: Wang, Balle and
  Kasiviswanathan 2019) with the improved conversion of Balle et al. 2020 and Canonne et al. 2020, by
  dp-accounting. An upper bound, as in the papers. `classic_epsilon` uses Mironov's conversion, a looser
  bound.
* dp-accounting computes whole orders by a finite sum, 1 plus a multiple of the divergence. So it loses the
  digits of a divergence below about 1e-15, and may even be negative. At fractional orders it adds the
  absolute values of an alternating series. This is an upper bound, but tens of percent too large below order
  2, where trainings with an epsilon of hundreds have their minimum. `sampled_gaussian` and
  `sampled_gaussian_whole` compute both without these errors.
* Total amount of noise, TAN = 1 / eta (Sander et al. 2022, section 3), for Poisson samples. With much noise,
  epsilon depends on eta (`signal_to_noise`) alone. This is an approximation and no bound: below a noise
  multiplier of about `WALL`, the paper's 'privacy wall', Renyi divergences are far larger.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache, partial
from math import factorial, inf, isfinite, log, log1p, log2, pi, sqrt

import numpy as np
from dp_accounting import DpEvent, NeighboringRelation
from dp_accounting.rdp import RdpAccountant, compute_epsilon
from scipy.special import logsumexp
from scipy.stats import binom

from dprepro.accountants.records import AccountantEpsilon, SampledGaussian, library

# dp-accounting warns about every Renyi order that it leaves out, which only loosens the bound
logging.getLogger("absl").setLevel(logging.ERROR)

# dense near 1, where large epsilons have their minimum, and large enough for epsilon .05 at delta 1e-5
ORDERS = (
    *np.arange(1.1, 5, 0.1).round(1).tolist(),
    *np.arange(5, 11, 0.5).tolist(),
    *range(11, 64),
    *np.geomspace(64, 4096, 40).round().tolist(),
)
# for samples without replacement: their bound takes long at large orders, and interpolates between whole ones
WHOLE_ORDERS = (*range(2, 64), 64, 80, 96, 128, 192, 256, 512, 1024)
LEAST_NOISE = 0.05  # below, the integral at fractional orders takes long, and sampling saves little
LEFT_OUT = 1e-6  # distance from the smallest epsilon, far above rounding, of orders that are left out
# ends of the integral, in standard deviations beyond the outermost means: densities there are e^-72
REACH = 12.0
LARGE_POWER = 30.0  # exponent far below overflow and far above cancellation
TINY_POWER = 1e-3  # exponent below which differences of exponentials are computed by their series
WALL = 2.0  # section 3.2 of Sander et al.
CLASSIC = "a looser bound, by the formula in Sander et al. 2022"
TAN = f"Sander et al. 2022; an approximation for noise multipliers above about {WALL:g}, not a bound"


def rdp_epsilon(event: DpEvent, delta: float) -> float:
    """Epsilon by Renyi DP with the improved conversion; neighbours add or remove one example.

    Args:
        event: composed mechanism.
        delta: delta of the guarantee.

    Returns:
        An upper bound on epsilon.
    """

    def divergence(order: float) -> float:
        return float(RdpAccountant([order], NeighboringRelation.ADD_OR_REMOVE_ONE).compose(event).rdp[0])

    return _smallest(ORDERS, divergence, partial(_improved, delta))


def _smallest(
    orders: Iterable[float],
    divergence: Callable[[float], float],
    converted: Callable[[float, float], float],
) -> float:
    """Smallest epsilon at ``orders``; infinity without a bound.

    An order is left out if it can't give the smallest, because a divergence is at least that of a smaller
    order. Whole orders come first: the others take longer.

    Args:
        orders: orders above 1.
        divergence: Renyi divergence at an order; infinity without a bound.
        converted: epsilon by an order and the divergence there.

    Returns:
        The epsilon.
    """
    epsilon, divergences = inf, {1.0: 0.0}  # of whole orders
    for order in sorted(orders, key=lambda order: (order % 1 > 0, log2(order) % 1 > 0, order)):
        smaller = divergences[max(known for known in divergences if known <= order)]
        if converted(order, smaller) > epsilon + LEFT_OUT:
            continue
        if isfinite(exact := divergence(order)):
            epsilon = min(epsilon, converted(order, exact))
            if order % 1 == 0:
                divergences[order] = exact
    return epsilon


def _improved(delta: float, order: float, divergence: float) -> float:
    """Epsilon by the improved conversion."""
    return float(compute_epsilon([order], [divergence], delta)[0])


@lru_cache(maxsize=4096)
def _renyi(spending: SampledGaussian, orders: tuple[float, ...]) -> np.ndarray:
    """Renyi divergences of one step, or of one epoch of 'shuffled', without `SampledGaussian.first_release`.

    dp-accounting's sum at whole orders loses the digits of a tiny divergence, and may be negative. Then the
    divergence is that of a sum of positive terms.

    Returns:
        (K,) divergences at the K orders; infinite where dp-accounting has no bound.
    """
    poisson = spending.sampling == "poisson"
    relation = NeighboringRelation.ADD_OR_REMOVE_ONE if poisson else NeighboringRelation.REPLACE_ONE
    all_orders, divergences = np.array(orders), np.empty(len(orders))
    integrable = poisson and spending.rate < 1 and spending.noise_multiplier >= LEAST_NOISE
    fractional = (all_orders % 1 > 0) & integrable  # slow in dp-accounting
    if fractional.any():
        divergences[fractional] = sampled_gaussian(
            spending.rate, spending.noise_multiplier, all_orders[fractional]
        )
    if not fractional.all():
        steps_alone = spending.model_copy(update={"first_release": None})
        accountant = RdpAccountant(all_orders[~fractional], relation)
        try:
            divergences[~fractional] = accountant.compose(steps_alone.event(1)).rdp
        except ValueError:  # a logarithm of 0, for samples without replacement and noise of 1e8 or more
            divergences[~fractional] = inf
    if poisson and spending.rate < 1 and (whole := all_orders % 1 == 0).any():
        exact = sampled_gaussian_whole(spending.rate, spending.noise_multiplier, all_orders[whole])
        divergences[whole] = np.maximum(divergences[whole], exact)
    return divergences


def renyi_divergence(spending: SampledGaussian, steps: int, order: float) -> float:
    """Renyi divergence of ``steps`` steps at one order; not for 'replacement' or 'allocation'."""
    return float(renyi_divergences(spending, steps, (order,))[0])


def renyi_epsilon(spending: SampledGaussian, steps: int, delta: float) -> float | None:
    """Epsilon by Renyi DP with the improved conversion; takes milliseconds; None without a bound."""
    return _converted(spending, steps, partial(_improved, delta))


def classic_epsilon(spending: SampledGaussian, steps: int, delta: float) -> float | None:
    """Epsilon by Renyi DP, conversion of Mironov 2017 (Sander et al. 2022, Eq. 3); None without a bound."""
    return _converted(spending, steps, lambda order, divergence: divergence - log(delta) / (order - 1))


def _converted(
    spending: SampledGaussian, steps: int, converted: Callable[[float, float], float]
) -> float | None:
    """`_smallest` epsilon of ``steps`` steps; None without a bound."""
    if spending.sampling in ("replacement", "allocation") or spending.grouped:
        return None
    orders = WHOLE_ORDERS if spending.sampling == "fixed" else ORDERS
    epsilon = _smallest(orders, lambda order: renyi_divergence(spending, steps, order), converted)
    return epsilon if isfinite(epsilon) else None


def renyi_divergences(spending: SampledGaussian, steps: int, orders: tuple[float, ...]) -> np.ndarray:
    """(K,) Renyi divergences of ``steps`` steps and of `SampledGaussian.first_release`, at K orders."""
    times = spending.epochs(steps) if spending.sampling == "shuffled" else steps
    total = _renyi(spending, orders) * times
    return total + np.array(orders) / (2 * spending.first_release**2) if spending.first_release else total


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


def signal_to_noise(spending: SampledGaussian, steps: int) -> float:
    """Ratio eta = (q / z) sqrt(S / 2) for sampling rate q, noise multiplier z, S steps (Definition 3.1)."""
    return spending.rate / spending.noise_multiplier * sqrt(steps / 2)


def tan_divergence(eta: float, order: float) -> float:
    """Renyi divergence alpha eta^2 at order alpha with much noise (section 3.2); eta: `signal_to_noise`."""
    return order * eta**2


def tan_epsilon(eta: float, delta: float) -> float:
    """Epsilon by Eq. 4, the minimum of Eq. 3 over all orders; eta: `signal_to_noise`."""
    return eta**2 + 2 * eta * sqrt(log(1 / delta))


def tan_eta(epsilon: float, delta: float) -> float:
    """`signal_to_noise` eta at which `tan_epsilon` is ``epsilon``."""
    root = sqrt(log(1 / delta))
    # sqrt(root^2 + epsilon) - root, without the loss of digits at a small epsilon
    return epsilon / (sqrt(root**2 + epsilon) + root)


def epsilons(
    spending: SampledGaussian, steps: int, delta: float, least: float
) -> Iterator[AccountantEpsilon]:
    """Epsilons by Renyi DP with the classic conversion (Eq. 3) and by the total amount of noise (Eq. 4)."""
    if spending.sampling != "poisson" or spending.grouped:
        return
    classic = classic_epsilon(spending, steps, delta)
    yield AccountantEpsilon(
        accountant=f"rdp, classic conversion ({library('dp-accounting')})", epsilon=classic, note=CLASSIC
    )
    if spending.first_release is not None:
        return  # TAN doesn't cover a first release
    eta = signal_to_noise(spending, steps)
    yield AccountantEpsilon(accountant="tan (Eq. 4)", epsilon=tan_epsilon(eta, delta), note=TAN)
