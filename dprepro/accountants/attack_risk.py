"""Attack risk of a mechanism, and mu of Gaussian DP with its regret.

Risk, mu and regret follow from the mechanism's trade-off curve f: at a false-positive rate alpha no
membership attack has a false-negative rate below f(alpha). A curve comes from

* privacy loss distributions p of removing and of adding an example. With the other data set, loss l has the
  probability e^-l p(l). So an attack that guesses 'member' at losses above y has the true-positive rate sum
  of p(l) over l > y, and the false-positive rate sum of e^-l p(l) over l > y. These points, their mirror
  images and the straight lines between them are the curve. For the probabilities with the other data set,
  gdpnum 0.1.2 and riskcal 1.5.1 use dp-accounting's distribution of adding an example, at all losses. For
  sampled Gaussians its masses sum to more than 1, because they are too large at very negative losses. So mu
  and true-positive rates of these packages are too small.
* deltas at epsilons: f(alpha) >= 1 - delta - e^epsilon alpha, and f(alpha) >= e^-epsilon (1 - delta - alpha)
  (Dong, Roth and Su 2022, Proposition 2.5).

Grids of losses are rounded pessimistically, so that rates, mu and regret are upper bounds.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import exp, isfinite, log

import numpy as np
from scipy.stats import norm

from dprepro.accountants.gaussian import Profile, unamplified
from dprepro.accountants.pld import PrivacyLosses, losses
from dprepro.accountants.records import Risk, SampledGaussian, rounded_up, up

OVERFLOW = 700.0  # largest exponent without overflow
LINES = 800  # epsilons of a profile that become lines of a curve
TABLE_LINES = 150  # of each half of a curve's table
SAMPLES = 2000  # points of a curve for mu and regret
REGRET_ERROR = 1e-9
DIGITS = 6  # of a table's error rates
LAST_LINE = DIGITS * log(10)  # larger epsilons give no line above an error rate of six digits
# false-positive rates of a table: denser at small ones, which matter for attacks
ALPHAS = (
    0.0,
    *(factor * 10.0**power for power in (-4, -3, -2) for factor in (1, 1.5, 2, 3, 4, 5, 7)),
    *(percent / 100 for percent in (*range(10, 50, 4), *range(50, 101, 10))),
)


@dataclass(frozen=True)
class Curve:
    """Trade-off curve: a lower bound on the false-negative rate of any attack."""

    at: Callable[[np.ndarray], np.ndarray]  # (K,) false-negative rates at (K,) false-positive rates
    corners: np.ndarray  # (M,) false-positive rates at which its slope changes
    advantage: float  # upper bound on a true-positive rate minus its false-positive rate


def attack_risk(curves: Sequence[Curve], epsilon: float) -> Risk:
    """Attack risk of a mechanism.

    Args:
        curves: trade-off curves of the mechanism; each is a lower bound.
        epsilon: proven epsilon of the mechanism at the ledger's delta. Its line touches the curve at one
            false-positive rate; mu of Gaussian DP covers error rates from this rate on. So mu is never below
            the mu of (epsilon, delta).

    Returns:
        Largest true-positive rates and advantage; mu and its regret.
    """
    curve = Curve(
        lambda alphas: np.maximum.reduce([each.at(alphas) for each in curves]),
        np.unique(np.concatenate([each.corners for each in curves])),
        min(each.advantage for each in curves),
    )
    least_rate = touching_rate(curve, epsilon)
    mu = gaussian_mu(curve, least_rate)
    first, second = (1 - curve.at(np.array([0.01, 0.001]))).tolist()
    return Risk(
        tpr_at_1_percent=first,
        tpr_at_01_percent=second,
        advantage=curve.advantage,
        mu=mu if isfinite(mu) else None,
        least_rate=least_rate,
        regret=regret(curve, mu) if isfinite(mu) else None,
    )


@lru_cache(maxsize=64)
def gaussian_risk(spending: SampledGaussian, steps: int, delta: float, epsilon: float) -> Risk:
    """Attack risk of ``steps`` Gaussian steps with proven ``epsilon`` at ``delta``."""
    grid = losses(spending, steps, delta, epsilon)
    curves = [curve_of_lines(np.array([epsilon]), np.array([delta]))]
    if isinstance(grid, PrivacyLosses):
        curves.append(curve_of_losses(grid))
    else:
        curves.append(curve_of_profile(grid.delta if grid else unamplified(spending, steps), epsilon))
    return attack_risk(curves, epsilon)


def laplace_risk(epsilon: float) -> Risk:
    """Attack risk of a mechanism with pure ``epsilon``."""
    return attack_risk([curve_of_lines(np.array([epsilon]), np.array([0.0]))], epsilon)


def curve_of_losses(losses: PrivacyLosses) -> Curve:
    """Trade-off curve of privacy loss distributions, from attacks with a threshold y >= 0 on the loss."""
    _, above, alphas = (np.concatenate(parts) for parts in zip(*losses.tails(), strict=True))
    alphas, betas = alphas.clip(max=1.0), (1 - above - losses.rounding).clip(0.0, 1.0)
    x, y = _envelope(np.concatenate([alphas, betas]), np.concatenate([betas, alphas]))
    return Curve(lambda rates: np.interp(rates, x, y), x, float((1 - x - y).max()))


def curve_of_profile(profile: Profile, epsilon: float) -> Curve:
    """Trade-off curve from lines of (epsilon, delta) of ``profile``, from epsilon 0 to beyond ``epsilon``."""
    beyond = np.geomspace(max(epsilon, 1e-3), max(OVERFLOW, 2 * epsilon), LINES // 5)
    epsilons = np.unique(np.concatenate([np.linspace(0, epsilon, LINES), beyond]))
    return curve_of_lines(epsilons, np.minimum(profile(epsilons), 1.0))


def curve_of_lines(epsilons: np.ndarray, deltas: np.ndarray) -> Curve:
    """Trade-off curve by two lines (see the module) for each of K ``epsilons`` (K,) and ``deltas`` (K,)."""
    slopes = np.exp(np.minimum(epsilons, OVERFLOW))[:, None]
    # a height of some 1e-16 is rounding of 0, and such an error rate would give a finite mu
    heights = 1 - deltas[:, None]
    heights[heights < 4 * np.finfo(float).eps] = 0.0

    def at(alphas: np.ndarray) -> np.ndarray:
        left = heights - slopes * alphas
        right = (heights - alphas) / slopes
        return np.maximum(np.maximum(left, right).max(0), 0.0)

    # the highest line at equal error rates meets its mirror image here
    corner = float(((1 - deltas) / (1 + slopes[:, 0])).max())
    advantage = float(((1 - deltas) * (slopes[:, 0] - 1) / (slopes[:, 0] + 1) + deltas).min())
    return Curve(at, np.array([corner]), advantage)


def tradeoff(profiles: Sequence[Profile], epsilon: float) -> tuple[tuple[float, float], ...]:
    """Table of the trade-off curve of a mechanism, a lower bound for any attacker.

    Args:
        profiles: upper bounds on the mechanism's delta, valid for adding and for removing an example.
        epsilon: largest epsilon of interest.

    Returns:
        Pairs (alpha, beta) of type I error and smallest type II error; beta is rounded down.
    """
    dense = np.linspace(0, min(epsilon, LAST_LINE), TABLE_LINES)
    # ``epsilon`` itself, of any size, gives beta at alpha 0
    epsilons = np.concatenate([dense, np.linspace(dense[-1], LAST_LINE, TABLE_LINES), [epsilon]])
    curve = curve_of_lines(epsilons, np.minimum.reduce([profile(epsilons) for profile in profiles]))
    floored = np.floor(curve.at(np.array(ALPHAS)) * 10**DIGITS) / 10**DIGITS
    return tuple((round(alpha, DIGITS), float(beta)) for alpha, beta in zip(ALPHAS, floored, strict=True))


def touching_rate(curve: Curve, epsilon: float) -> float:
    """False-positive rate, above 0, at which a line of slope -e^epsilon touches the curve."""
    rates = _rates(curve, 0.0)
    height = curve.at(rates) + exp(min(epsilon, OVERFLOW)) * rates
    # the largest rate, if the line touches along a segment
    return float(rates[height <= height.min() + 1e-15][-1])


def gaussian_mu(curve: Curve, least_rate: float) -> float:
    """Smallest mu whose curve f_mu of mu-GDP is <= f wherever both error rates are at least ``least_rate``.

    Args:
        curve: trade-off curve f of a mechanism.
        least_rate: smallest false-positive and false-negative rate.

    Returns:
        Maximum over the curve of isf(alpha) + isf(beta), isf inverting 1 - Phi; may be infinite.
    """
    alphas = _rates(curve, least_rate)
    betas = curve.at(alphas)
    inside = (betas >= least_rate) & (betas < 1)
    if not inside.any():
        return float("inf")
    return max(0.0, float((norm.isf(alphas[inside]) + norm.isf(betas[inside])).max()))


def regret(curve: Curve, mu: float) -> float:
    """Smallest D with f(x + D) - D <= f_mu(x) at all x, for ``curve`` f and the curve f_mu of mu-GDP."""
    rates = np.unique(np.concatenate([[0.0], np.geomspace(1e-12, 1, SAMPLES), np.linspace(0, 1, SAMPLES)]))
    gaussian = norm.cdf(norm.isf(rates) - mu)
    low, high = 0.0, 1.0
    while high - low > REGRET_ERROR:
        middle = (low + high) / 2
        dominated = curve.at(np.minimum(rates + middle, 1.0)) - middle <= gaussian
        low, high = (low, middle) if dominated.all() else (middle, high)
    return high


def _rates(curve: Curve, least_rate: float) -> np.ndarray:
    """False-positive rates in [``least_rate``, 1) for comparisons: the curve's corners and points between."""
    rates = np.unique(np.concatenate([np.geomspace(max(least_rate, 1e-300), 0.999, SAMPLES), curve.corners]))
    return rates[(rates >= max(least_rate, 1e-300)) & (rates < 1)]


def _envelope(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Lower convex envelope of points (Andrew 1979)."""
    order = np.lexsort((y, x))
    x, y = x[order], y[order]
    first = np.concatenate([[True], np.diff(x) > 0])
    x, y = x[first], np.minimum.accumulate(y[first])
    for _ in range(4):  # most points lie clearly above the line between their neighbours: they are no corners
        lines = (y[1:-1] - y[:-2]) * (x[2:] - x[:-2])
        above = (x[1:-1] - x[:-2]) * (y[2:] - y[:-2]) < lines * (1 + 1e-9)
        x, y = (np.delete(each, 1 + np.flatnonzero(above)) for each in (x, y))
    xs, ys = x.tolist(), y.tolist()
    hull: list[int] = []
    for index, (right, height) in enumerate(zip(xs, ys, strict=True)):
        while len(hull) > 1:
            left, middle = hull[-2], hull[-1]
            rise = (xs[middle] - xs[left]) * (height - ys[left])
            if rise > (ys[middle] - ys[left]) * (right - xs[left]):
                break
            hull.pop()
        hull.append(index)
    return x[hull], y[hull]


def stated_risk(risk: Risk) -> Risk:
    """Attack risk with its bounds rounded up, and its cut-off ``least_rate`` rounded up to two digits."""
    changes = {name: None if value is None else up(value) for name, value in risk}
    return risk.model_copy(update={**changes, "least_rate": float(rounded_up(risk.least_rate, 2))})
