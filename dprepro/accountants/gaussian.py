"""Closed forms: mu-GDP, N(0, 1) against N(mu, 1) (Dong, Roth and Su 2022), and steps whose samples are known.

For an attacker who knows the samples, steps are a mixture of Gaussian mechanisms over the distance that an
example's draws move the releases. Mu by the central limit theorems of papers is an approximation, no bound.
"""

from collections.abc import Callable
from functools import lru_cache
from math import ceil, exp, expm1, floor, hypot, isfinite, sqrt

import numpy as np
from scipy.special import erfcx, ndtr
from scipy.stats import binom

from dprepro.accountants.records import SampledGaussian

# privacy profile of a mechanism: delta at each epsilon
Profile = Callable[[np.ndarray], np.ndarray]
# relative excess of `least_epsilon` over the exact value, at most
PRECISION = 1e-9
# Probability, per step and in total, of rare events, which count as the worst case.
RARE = 1e-20
MOST_VALUES = 20_000  # largest number of values of a mixture; a mixture with more values is coarsened


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


def step_distances(spending: SampledGaussian) -> tuple[np.ndarray, np.ndarray]:
    """Distribution of the distance between the releases of a step for neighbouring data sets.

    The unit is the distance that a single draw moves a release. Distance 0, if the example isn't drawn, is
    left out. Large numbers of draws, rarer than `RARE` in total, count as the largest possible distance.

    Args:
        spending: sampling, noise and sizes of one step.

    Returns:
        (K,) distances >= 1 and their (K,) probabilities.
    """
    distances, probabilities, rest = _common_distances(spending)
    if rest:
        return np.append(distances, spending.sets), np.append(probabilities, rest)
    return distances, probabilities


def mixture(spending: SampledGaussian) -> tuple[list[float], list[float]]:
    """Distances of `step_distances`, 0 included, and their probabilities."""
    distances, probabilities = step_distances(spending)
    unmoved = max(0.0, 1.0 - float(probabilities.sum()))
    return [0.0, *distances.astype(float).tolist()], [unmoved, *probabilities.tolist()]


def _common_distances(spending: SampledGaussian) -> tuple[np.ndarray, np.ndarray, float]:
    """Distances of `step_distances` up to a limit, their probabilities, and that of larger distances."""
    if (group := spending.group or 1) > 1:
        drawn = np.arange(1, group + 1)
        return drawn, binom.pmf(drawn, group, spending.rate), 0.0
    if spending.sampling != "replacement":
        return np.array([1]), np.array([spending.rate]), 0.0
    # draws beyond the number of mini-sets move nothing more
    largest = min(spending.sets, _success_bound(spending.batch, 1 / spending.examples))
    draws, counts = binom(spending.batch, 1 / spending.examples), np.arange(1, largest + 1)
    if largest == spending.sets:
        return counts, np.append(draws.pmf(counts[:-1]), draws.sf(largest - 1)), 0.0
    return counts, draws.pmf(counts), float(draws.sf(largest))


@lru_cache(maxsize=256)
def squared_distances(spending: SampledGaussian, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Upper bound on the distribution of the sum of squared distances in ``steps`` steps.

    The rarest sums count as the largest possible sum, so the bound holds at every delta.

    Args:
        spending: sampling, noise and sizes of one step.
        steps: number of steps.

    Returns:
        (K,) sums and their (K,) probabilities.
    """
    if spending.sampling in ("shuffled", "allocation"):
        return np.array([spending.epochs(steps) * spending.participations]), np.array([1.0])
    if (group := spending.group or 1) > 1:
        # j draws of a person's k examples move a step by j distances, and j^2 is at most k j
        _, largest_sums, total = successes(steps * group, spending.rate)
        return group * largest_sums, total
    distances, probabilities, rest = _common_distances(spending)
    if len(distances) == 1 and not rest:
        _, largest_sums, total = successes(steps, probabilities[0])
        return largest_sums, total
    step_distribution = np.zeros(distances[-1] ** 2 + 1)
    step_distribution[distances**2] = probabilities
    step_distribution[0] = binom.pmf(0, spending.batch, 1 / spending.examples)
    power, total = step_distribution, np.ones(1)
    for bit in reversed(bin(steps)[2:]):
        if bit == "1":
            total = _trimmed(np.convolve(total, power))
        power = _trimmed(np.convolve(power, power))
    # of all steps: larger distances, and the trimmed values of every product, which later ones double
    rare = max(0.0, 1.0 - float(total.sum())) + 8 * steps * RARE
    return np.append(np.arange(len(total)), steps * spending.sets**2), np.append(total, rare)


def successes(trials: int, probability: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Binomial distribution of the number of successes among ``trials``, over intervals of this number.

    The first and the last interval have all rare numbers. Each of the others has one number, or several if
    there are more than `MOST_VALUES`.

    Args:
        trials: number of independent trials.
        probability: probability of success.

    Returns:
        (K,) smallest and (K,) largest numbers of K intervals, and their (K,) probabilities.
    """
    mean = trials * probability
    margin = 10 * sqrt(mean * (1 - probability)) + 50  # beyond it is less than `RARE`
    low, high = max(0, floor(mean - margin)), min(trials, ceil(mean + margin))
    stride = -(-(high - low + 1) // MOST_VALUES)
    endpoints = np.minimum(np.arange(low, high + stride, stride), trials)
    distribution = binom(trials, probability)
    lower_tail, upper_tail = distribution.cdf(endpoints), distribution.sf(endpoints)
    # on either side of the mean, from differences of that side's tail, which are precise
    between = np.where(endpoints[1:] > mean, upper_tail[:-1] - upper_tail[1:], np.diff(lower_tail))
    smallest, largest = np.concatenate([[0], endpoints + 1]), np.append(endpoints, trials)
    probabilities = np.concatenate([lower_tail[:1], np.maximum(between, 0.0), upper_tail[-1:]])
    return smallest, largest, probabilities


def _success_bound(trials: int, probability: float) -> int:
    """Number of successes, at least 1, that is exceeded with a probability below `RARE`."""
    bound = 1
    while bound < trials and binom.sf(bound, trials, probability) >= RARE:
        bound = min(2 * bound, trials)
    return bound


def _trimmed(probabilities: np.ndarray) -> np.ndarray:
    """Probabilities without the largest values, if these are rarer than `RARE` in total."""
    upper_tail = probabilities[::-1].cumsum()[::-1]
    return probabilities[: max(1, int((upper_tail >= RARE).sum()))]


def unamplified(spending: SampledGaussian, steps: int) -> Profile:
    """Delta for an attacker who knows in which steps an example was drawn, and how often.

    For this attacker sampling hides nothing. Let H be the sum of squared distances (`squared_distances`) and
    z the noise multiplier. Given H = h, the adaptive composition of the steps is sqrt(h)/z-GDP (Dong, Roth
    and Su 2022, Corollary 3.3). So delta is the sum over h of P(H = h) times the delta of sqrt(h)/z-GDP. It
    is an upper bound for every kind of sampling, because the knowledge only helps the attacker
    (post-processing). It needs no grid of losses, so it also bounds an epsilon of millions.

    Args:
        spending: sampling, noise and sizes of one step.
        steps: number of steps.

    Returns:
        Function of epsilons >= 0 that gives delta.
    """
    values, probabilities = squared_distances(spending, steps)
    first_mu = 1 / spending.first_release if spending.first_release else 0.0
    mu = np.hypot(np.sqrt(values) / spending.noise_multiplier, first_mu)

    def profile(epsilons: np.ndarray) -> np.ndarray:
        # one by one, as a mixture may have many parts
        return np.array(
            [min(float(gaussian_delta(epsilon, mu) @ probabilities), 1.0) for epsilon in epsilons]
        )

    return profile


def unamplified_epsilon(spending: SampledGaussian, steps: int, delta: float) -> float:
    """Epsilon at ``delta`` of the profile `unamplified`."""
    return least_epsilon(unamplified(spending, steps), delta)


def clt_mu(spending: SampledGaussian, steps: int) -> float | None:
    """Mu of Gaussian DP by the central limit theorem that papers state for this sampling.

    Batches have m of N examples, T is the number of steps, and z the noise multiplier. ``fixed`` and
    ``replacement``: sqrt(2) c h(z) with c = (m / N) sqrt(T), Corollary 5.4 of Dong, Roth and Su 2022 and
    Appendix B.1 of Nguyen et al. 2023. ``poisson``: (m / N) sqrt(T (e^(1/z^2) - 1)), Bu et al. 2020; also
    ``allocation``, whose likelihood ratios have the same variance. ``shuffled``: sqrt(epochs) / z, which is
    exact if the order is known. The squared mu of a first release and of the steps are added (Dong, Roth and
    Su 2022, Corollary 3.3).

    Args:
        spending: sampling, noise and sizes of one step.
        steps: number of steps.

    Returns:
        mu; None if it overflows.
    """
    noise, share = spending.noise_multiplier, spending.rate * sqrt(steps)
    try:
        if spending.sampling == "shuffled":
            mu = sqrt(spending.epochs(steps)) / noise
        elif spending.sampling in ("poisson", "allocation"):
            mu = share * sqrt(expm1(noise**-2))
        else:
            mu = sqrt(2) * share * h(noise)
    except OverflowError:
        return None
    if spending.first_release is not None:
        mu = hypot(mu, 1 / spending.first_release)
    return mu if isfinite(mu) else None


def h(noise: float) -> float:
    """Factor h(z) in Corollary 5.4 of Dong, Roth and Su 2022.

    It is sqrt(e^(1/z^2) Phi(3 / (2 z)) + 3 Phi(-1 / (2 z)) - 2), with Phi the standard normal distribution
    function. Appendix B.1 of Nguyen et al. 2023 has the same formula: its example has Phi(3 sqrt(62)) for
    z = .5 / sqrt(62).

    Args:
        noise: noise multiplier z.

    Returns:
        h(z).

    Raises:
        OverflowError: the noise is so small that the result overflows.
    """
    square = exp(noise**-2) * ndtr(1.5 / noise) + 3 * ndtr(-0.5 / noise) - 2
    return sqrt(max(0.0, float(square)))
