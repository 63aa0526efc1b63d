"""How often an example is drawn, and how far that moves what a training releases."""

from functools import lru_cache

import numpy as np
from scipy.stats import binom

from pipeline.privacy.gaussian import Profile, gaussian_delta, least_epsilon
from pipeline.privacy.spending import Spending

# Probability, a step and in all, of the rare events that are left out here; it is added to delta.
RARE = 1e-20


def moves(spending: Spending) -> tuple[np.ndarray, np.ndarray]:
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
def moved(spending: Spending, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """The sum of ``steps`` squared distances: (K,) values and their (K,) probabilities, but the rarest."""
    if spending.sampling == "shuffled":
        return np.array([spending.epochs(steps)]), np.array([1.0])
    distances, chances = moves(spending)
    if len(distances) == 1:
        values = np.arange(_most(steps, chances[0]) + 1)
        return values, binom.pmf(values, steps, chances[0])
    one = np.zeros(distances[-1] ** 2 + 1)
    one[distances**2] = chances
    one[0] = binom.pmf(0, spending.batch, 1 / spending.examples)
    power, found = one, np.ones(1)
    for bit in reversed(bin(steps)[2:]):
        if bit == "1":
            found = _trimmed(np.convolve(found, power))
        power = _trimmed(np.convolve(power, power))
    return np.arange(len(found)), found


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


def unamplified(spending: Spending, steps: int) -> Profile:
    """Delta at epsilons >= 0 for an attacker who is told in which steps an example was drawn, and how often.

    Sampling then hides nothing, and what is left is a mixture of Gaussians: sum_h P(H = h) of sqrt(h)/z-GDP,
    H the sum of squared distances. An upper bound for every kind of sampling, as what is told only helps
    (post-processing), and the steps' adaptive composition given it is Gaussian (Dong, Roth and Su 2022,
    Corollary 3.3). Needs no grid of losses, and so bounds an epsilon of millions.
    """
    values, chances = moved(spending, steps)
    mu = np.sqrt(values) / spending.noise_multiplier
    rare = max(0.0, 1.0 - float(chances.sum())) + steps * RARE

    def profile(epsilons: np.ndarray) -> np.ndarray:
        return np.minimum(gaussian_delta(np.asarray(epsilons)[:, None], mu) @ chances + rare, 1.0)

    return profile


def unamplified_epsilon(spending: Spending, steps: int, delta: float) -> float:
    """Epsilon at ``delta`` of the profile `unamplified`."""
    return least_epsilon(unamplified(spending, steps), delta)
