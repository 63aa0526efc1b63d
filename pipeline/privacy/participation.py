"""How often an example is drawn, and how far that moves what a training releases."""

from functools import lru_cache
from math import ceil, floor, sqrt

import numpy as np
from scipy.stats import binom

from pipeline.privacy.gaussian import Profile, gaussian_delta, least_epsilon
from pipeline.privacy.sampled_gaussian import SampledGaussian

# Probability, a step and in all, of rare events, which count as the worst there is.
RARE = 1e-20
MOST_VALUES = 20_000  # of a mixture; it is coarser where there would be more


def moves(spending: SampledGaussian) -> tuple[np.ndarray, np.ndarray]:
    """How far one step moves by a neighbouring data set: (K,) distances >= 1, and their (K,) probabilities.

    Distances are in those of a single draw. An example that isn't drawn moves nothing, and that probability
    is left out. Draws rarer than `RARE` in all count as the most that are not.
    """
    if spending.sampling != "replacement":
        return np.array([1]), np.array([spending.rate])
    # draws beyond the number of mini-sets move nothing more
    most = min(spending.sets, _most(spending.batch, 1 / spending.examples))
    draws, counts = binom(spending.batch, 1 / spending.examples), np.arange(1, most + 1)
    return counts, np.append(draws.pmf(counts[:-1]), draws.sf(most - 1))


@lru_cache(maxsize=256)
def moved(spending: SampledGaussian, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """The sum of ``steps`` squared distances, at most: (K,) values and their (K,) probabilities.

    The rarest sums count as the largest that is possible at all, so that a bound comes of any delta.
    """
    if spending.sampling == "shuffled":
        return np.array([spending.epochs(steps)]), np.array([1.0])
    distances, chances = moves(spending)
    if len(distances) == 1:
        _, most, total = successes(steps, chances[0])
        return most, total
    of_step = np.zeros(distances[-1] ** 2 + 1)
    of_step[distances**2] = chances
    of_step[0] = binom.pmf(0, spending.batch, 1 / spending.examples)
    power, total = of_step, np.ones(1)
    for bit in reversed(bin(steps)[2:]):
        if bit == "1":
            total = _trimmed(np.convolve(total, power))
        power = _trimmed(np.convolve(power, power))
    rare = max(0.0, 1.0 - float(total.sum())) + steps * RARE
    return np.append(np.arange(len(total)), steps * spending.sets**2), np.append(total, rare)


def successes(trials: int, chance: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """How many of ``trials`` succeed: (K,) least and (K,) largest numbers, and (K,) probabilities between.

    Each number is by itself where few do. Those that hardly ever occur stand at either end.
    """
    mean = trials * chance
    reach = 10 * sqrt(mean * (1 - chance)) + 50  # beyond it is less than `RARE`
    low, high = max(0, floor(mean - reach)), min(trials, ceil(mean + reach))
    stride = -(-(high - low + 1) // MOST_VALUES)
    ends = np.minimum(np.arange(low, high + stride, stride), trials)
    below, above = binom.cdf(ends, trials, chance), binom.sf(ends, trials, chance)
    # on either side of the mean from the tail there, which has all its digits
    between = np.where(ends[1:] > mean, above[:-1] - above[1:], np.diff(below))
    least, most = np.concatenate([[0], ends + 1]), np.append(ends, trials)
    return least, most, np.concatenate([below[:1], np.maximum(between, 0.0), above[-1:]])


def _most(trials: int, chance: float) -> int:
    """A number of successes, at least 1, that is exceeded with a probability below `RARE`."""
    most = 1
    while most < trials and binom.sf(most, trials, chance) >= RARE:
        most = min(2 * most, trials)
    return most


def _trimmed(probabilities: np.ndarray) -> np.ndarray:
    """Without the top values, where they are rarer than `RARE` in all."""
    above = probabilities[::-1].cumsum()[::-1]
    return probabilities[: max(1, int((above >= RARE).sum()))]


def unamplified(spending: SampledGaussian, steps: int) -> Profile:
    """Delta at epsilons >= 0 for an attacker who is told in which steps an example was drawn, and how often.

    Sampling then hides nothing, and what is left is a mixture of Gaussians: sum_h P(H = h) of sqrt(h)/z-GDP,
    H the sum of squared distances. An upper bound for every kind of sampling, as what is told only helps
    (post-processing), and the steps' adaptive composition given it is Gaussian (Dong, Roth and Su 2022,
    Corollary 3.3). Needs no grid of losses, and so bounds an epsilon of millions.
    """
    values, chances = moved(spending, steps)
    before = 1 / spending.first_release if spending.first_release else 0.0
    mu = np.hypot(np.sqrt(values) / spending.noise_multiplier, before)

    def profile(epsilons: np.ndarray) -> np.ndarray:
        # one by one, as a mixture may have many parts
        return np.array([min(float(gaussian_delta(epsilon, mu) @ chances), 1.0) for epsilon in epsilons])

    return profile


def unamplified_epsilon(spending: SampledGaussian, steps: int, delta: float) -> float:
    """Epsilon at ``delta`` of the profile `unamplified`."""
    return least_epsilon(unamplified(spending, steps), delta)
