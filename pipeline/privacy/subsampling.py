"""Privacy loss distributions of Gaussian steps on samples of a fixed size, which dp-accounting does not have.

With dp-accounting's own of Poisson samples they give epsilon at delta and the trade-off curve, as upper
bounds: losses are rounded pessimistically (Doroshenko et al. 2022, 'Connect the dots').
"""

from dataclasses import dataclass
from functools import lru_cache, reduce
from math import ceil, floor, inf, isfinite, log, log1p

import numpy as np
from dp_accounting.pld.pld_pmf import PLDPmf, create_pmf_pessimistic_connect_dots_fixed_gap
from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution, from_gaussian_mechanism
from dp_accounting.pld.privacy_loss_mechanism import AdjacencyType, GaussianPrivacyLoss
from scipy.special import log_ndtr, ndtr

from pipeline.privacy.gaussian import gaussian_delta, least_epsilon
from pipeline.privacy.participation import moves
from pipeline.privacy.sampled_gaussian import SampledGaussian

# Probability of a step's losses that are too large to be told apart, and count as infinite.
FARTHEST = 1e-18
# No grid beyond this epsilon: sampling saves little there, and dp-accounting's numbers run out.
LARGEST = 1e5
# Nor below this one, of which a step's losses are so small a part that composing them takes for ever.
LEAST = 1e-3
MOST_POINTS = 2e5  # of one step's grid
# What a step's part in a Fourier transform's rounding may take off a delta: three times the most that long
# doubles show of it (see the tests), two units of a double's last place.
ROUNDING = 1e-15
# Steps of which dp-accounting counts how many losses all of them may have, exactly, before it composes.
MOST_AT_ONCE = 1_000_000


@dataclass(frozen=True)
class Losses:
    """Losses on a grid, and what rounding may have taken off a delta, by which every delta is larger here."""

    grid: PrivacyLossDistribution
    rounding: float

    def epsilon(self, delta: float) -> float:
        """An upper bound at ``delta``; infinity where that is too small to be told from rounding."""
        return float(self.grid.get_epsilon_for_delta(delta - self.rounding)) if delta > self.rounding else inf

    def delta(self, epsilons: np.ndarray) -> np.ndarray:
        """Upper bounds at each epsilon, the worse of adding and removing."""
        # one by one: its way of taking many at once overflows at large epsilons
        return (
            np.array([self.grid.get_delta_for_epsilon(float(epsilon)) for epsilon in epsilons])
            + self.rounding
        )

    def compose(self, other: "Losses") -> "Losses":
        """Of both, on the same grid."""
        return Losses(self.grid.compose(other.grid), self.rounding + other.rounding + ROUNDING)


@dataclass(frozen=True)
class OneStep:
    """Losses of a single step, which need no grid."""

    spending: SampledGaussian

    def epsilon(self, delta: float) -> float:
        """An upper bound at ``delta``."""
        return least_epsilon(self.delta, delta)

    def delta(self, epsilons: np.ndarray) -> np.ndarray:
        """`amplified`; of a Poisson sample adding an example tells less than removing it."""
        return amplified(self.spending, np.asarray(epsilons))


def losses(spending: SampledGaussian, steps: int, delta: float, bound: float) -> Losses | OneStep | None:
    """The losses of ``steps`` steps on a grid that is fine for their epsilon at ``delta``, at most ``bound``.

    None where there is none: of 'shuffled', whose steps depend on each other, at other epsilons than those
    from `LEAST` to `LARGEST`, and at a delta that is too small to be told from rounding.
    """
    if steps == 1 and spending.sampling != "shuffled" and spending.first_release is None:
        return OneStep(spending)
    if spending.sampling == "shuffled" or not LEAST <= bound <= LARGEST or delta <= ROUNDING * steps:
        return None
    interval = _interval(spending, bound)
    grid = composed(spending, steps, interval)
    while isfinite(told := grid.epsilon(delta)) and (finer := _interval(spending, told)) < interval / 2:
        interval, grid = finer, composed(spending, steps, finer)
    return grid if isfinite(told) else None


def _interval(spending: SampledGaussian, epsilon: float) -> float:
    """1e-4, as dp-accounting has it, and less or more than that for epsilons far from 1."""
    coarsest = _farthest(spending) / MOST_POINTS
    return max(1e-5 * epsilon, min(1e-4, 2e-4 * epsilon), coarsest)


def _farthest(spending: SampledGaussian) -> float:
    """The loss from which those of one step count as infinite."""
    return least_epsilon(lambda epsilons: amplified(spending, epsilons), FARTHEST)


@lru_cache(maxsize=16)
def composed(spending: SampledGaussian, steps: int, interval: float) -> Losses:
    """The losses of ``steps`` steps and what came before them, on a grid of ``interval``.

    Not for 'shuffled', whose steps depend on each other.
    """
    if spending.first_release is not None:
        first = from_gaussian_mechanism(spending.first_release, value_discretization_interval=interval)
        others = spending.model_copy(update={"first_release": None})
        return Losses(first, ROUNDING).compose(composed(others, steps, interval))
    if spending.sampling == "poisson":
        of_step = of_one_poisson_step(spending.noise_multiplier, spending.rate, interval)
    else:
        of_step = _of_one_step(spending, interval)
    rounding = ROUNDING * steps
    if steps == 1:  # composing it with nothing takes as long as with others
        return Losses(of_step, rounding)
    # the more at a time the better, as each composition leaves out what hardly ever happens
    whole, rest = divmod(steps, MOST_AT_ONCE)
    parts = [of_step.self_compose(MOST_AT_ONCE).self_compose(whole)] if whole else []
    parts += [of_step.self_compose(rest)] if rest else []
    return Losses(reduce(lambda first, second: first.compose(second), parts), rounding)


def of_one_poisson_step(noise_multiplier: float, rate: float, interval: float) -> PrivacyLossDistribution:
    """dp-accounting's `from_gaussian_mechanism`, which goes point by point, over the whole grid at once."""
    if rate == 1:
        return from_gaussian_mechanism(noise_multiplier, value_discretization_interval=interval)

    def of(adjacency: AdjacencyType) -> PLDPmf:
        bounds = GaussianPrivacyLoss(
            noise_multiplier, sampling_prob=rate, adjacency_type=adjacency
        ).connect_dots_bounds()
        low, high = floor(bounds.epsilon_lower / interval), ceil(bounds.epsilon_upper / interval)
        deltas = poisson_deltas(noise_multiplier, rate, adjacency, interval * np.arange(low, high + 1))
        return create_pmf_pessimistic_connect_dots_fixed_gap(interval, low, high, deltas)

    return PrivacyLossDistribution(of(AdjacencyType.REMOVE), of(AdjacencyType.ADD))


def poisson_deltas(
    noise_multiplier: float, rate: float, adjacency: AdjacencyType, epsilons: np.ndarray
) -> np.ndarray:
    """(K,) delta at any (K,) epsilons of one Gaussian step on a Poisson sample, 0 < ``rate`` < 1.

    Removing an example: delta = P(S) - e^epsilon Q(S) of P = q N(-1, z^2) + (1 - q) N(0, z^2), Q = N(0, z^2)
    and S = {x: P(x) >= e^epsilon Q(x)}, the numbers up to a cutoff. Adding one: P and Q change places.
    """
    removing = adjacency == AdjacencyType.REMOVE
    sign = 1.0 if removing else -1.0
    # beyond which no x has so small, or so large, a ratio of densities
    inside = sign * epsilons > log1p(-rate)
    deltas, inner = np.zeros(len(epsilons)), epsilons[inside]
    if removing:
        deltas[~inside] = -np.expm1(epsilons[~inside])
    cutoffs = -sign * (0.5 + noise_multiplier**2 * _without_sampling(sign * inner, rate))
    plain, moved = cutoffs / noise_multiplier, (cutoffs + sign) / noise_multiplier
    if removing:
        deltas[inside] = rate * ndtr(moved) + (1 - rate) * ndtr(plain) - np.exp(inner + log_ndtr(plain))
    else:
        mixed = np.logaddexp(log(rate) + log_ndtr(moved), log1p(-rate) + log_ndtr(plain))
        deltas[inside] = ndtr(plain) - np.exp(inner + mixed)
    return np.clip(deltas, 0, 1)


def _without_sampling(epsilons: np.ndarray, rate: float) -> np.ndarray:
    """log(1 + (e^epsilon - 1) / rate), near 0 without loss of digits and far from it without overflow."""
    with np.errstate(divide="ignore"):  # at the boundary, log(1 - rate), it is minus infinity
        near = np.log1p(np.maximum(np.expm1(np.minimum(epsilons, 1.0)) / rate, -1.0))
    far = np.maximum(epsilons, 1.0)
    return np.where(epsilons < 1, near, far - log(rate) + np.log1p((rate - 1) * np.exp(-far)))


def amplified(spending: SampledGaussian, epsilons: np.ndarray) -> np.ndarray:
    """(K,) delta of one step at epsilons >= 0, for data sets that differ in one example replaced.

    With p the probability that the example is drawn at all, P(j) that it moves the release by j distances,
    and alpha = 1 + (e^epsilon - 1) / p: delta(epsilon) = sum_j P(j) delta_j(log alpha), delta_j the
    Gaussian's own.

    Without replacement this is p delta_1, exact: Theorem 11 of Zhu, Dong and Wang 2022, and Dong, Roth and
    Su's C_p. With replacement it is Theorem 10 of Balle, Barthe and Gaboardi 2018: an upper bound, and the
    same where j is 0 or 1.
    """
    distances, chances = moves(spending)
    inner = np.logaddexp(0.0, _log_expm1(epsilons) - np.log(chances.sum()))
    return gaussian_delta(inner[:, None], distances / spending.noise_multiplier) @ chances


def _log_expm1(values: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore"):
        return np.log(-np.expm1(-values)) + values


def _of_one_step(spending: SampledGaussian, interval: float) -> PrivacyLossDistribution:
    """Losses of one step: the pair of distributions whose delta is `amplified` at every epsilon >= 0.

    Replacing is symmetric, so the pair may be swapped: at epsilon < 0 delta is 1 - e^epsilon + e^epsilon
    delta(-epsilon), and a loss -l has e^-l times the probability of l. A larger delta than the sampling's own
    only makes the bound larger; the kink at 0 is convex.
    """
    last = max(1, int(np.ceil(_farthest(spending) / interval)))
    deltas = amplified(spending, interval * np.arange(last + 1))
    # Delta is drawn as straight lines over e^epsilon, above the true one as that is convex; where they bend
    # there is probability. Beyond the last point delta stays what it is there: losses without end.
    rises = np.append(np.diff(deltas), 0.0)
    above = np.maximum((rises[1:] - np.exp(interval) * rises[:-1]) / np.expm1(interval), 0.0)
    places = np.arange(1, last + 1)
    below = np.exp(-interval * places) * above
    at_zero = max(0.0, 1.0 - above.sum() - below.sum() - deltas[-1])
    losses = np.concatenate([-places[::-1], [0], places]).tolist()
    chances = np.concatenate([below[::-1], [at_zero], above]).tolist()
    return PrivacyLossDistribution.create_from_rounded_probability(
        dict(zip(losses, chances, strict=True)), float(deltas[-1]), interval
    )
