"""Canaries among a training's own examples, each included by a fair coin, and bounds from their scores.

A canary takes the place of an example. Runs have separate coins, so m canaries in each of R runs count as
R m canaries of one run (parallel composition), and the bounds for one run hold. If each of many runs has one
canary, the runs are also independent trials.
"""

from dataclasses import dataclass
from functools import lru_cache
from math import inf
from typing import Literal

import numpy as np
from dp_accounting import get_sigma_gaussian
from scipy.special import expit

from dprepro.auditing.epsilon_bounds import lower_bounds

CanaryInput = Literal["mislabelled", "extreme"]
REPEATS = 5  # simulations of a perfect attacker
# shares of the canaries on which the attacker guesses; never all, because seldom exactly half are in
SHARES = (0.05, 0.2, 0.5, 0.9)
FEWEST = 8  # least number of independent trials for a choice of thresholds


@dataclass(frozen=True)
class Canaries:
    """Examples that take the places of m examples of the training set."""

    positions: np.ndarray  # (m,) positions of the replaced examples
    inputs: np.ndarray  # (m, ...)
    labels: np.ndarray  # (m,)


def make_canaries(
    kind: CanaryInput, inputs: np.ndarray, labels: np.ndarray, count: int, classes: int, seed: int
) -> Canaries:
    """Make ``count`` canaries for data with ``inputs`` (N, ...) and ``labels`` (N,).

    A 'mislabelled' canary is an example with another, random label. An 'extreme' canary has a random label,
    and each of its entries is the least or the largest number of all inputs, by a coin. All entries of the
    first 'extreme' canary are the largest number.
    """
    generator = np.random.default_rng([seed, 0])
    positions = np.sort(generator.choice(len(labels), count, replace=False))
    own = np.array(inputs[positions])
    if kind == "mislabelled":
        others = (labels[positions] + generator.integers(1, classes, count)) % classes
        return Canaries(positions, own, others.astype(labels.dtype))
    bright = generator.random(own.shape) < 0.5
    bright[0] = True
    extremes = np.where(bright, inputs.max(), inputs.min()).astype(own.dtype)
    return Canaries(positions, extremes, generator.integers(0, classes, count).astype(labels.dtype))


def fair_coins(runs: int, count: int, seed: int) -> np.ndarray:
    """(R, m) fair coins for R ``runs`` and m = ``count`` canaries: True where a run includes the canary."""
    return np.random.default_rng([seed, 1]).random((runs, count)) < 0.5


def margins(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """(m,) log-odds of m canaries' labels from (m, K) logits for K classes; larger if they are learnt."""
    rows = np.arange(len(labels))
    others = logits.astype(float)
    own = others[rows, labels]
    others[rows, labels] = -inf
    return own - np.logaddexp.reduce(others, axis=1)


def canary_bounds(
    without: np.ndarray, within: np.ndarray, independent: bool, alpha: float, delta: float
) -> dict[str, float]:
    """Lower bounds on epsilon from scores, by name.

    The bounds that assume nothing hold together at ``alpha``. The bounds that assume a Gaussian mechanism
    also hold together at ``alpha``.

    Args:
        without: scores of left-out canaries.
        within: scores of included canaries; a good attacker's are larger than those in ``without``.
        independent: whether each score is of a separate run.
        alpha: significance of all bounds with the same assumption.
        delta: delta of the guarantee; at 0 no bound assumes a Gaussian.
    """
    trials = independent and min(len(without), len(within)) >= FEWEST
    names = ("one_run", "errors", "one_run_curve", "gaussian") if trials else ("one_run", "one_run_curve")
    return lower_bounds(without, within, names, alpha / 2 if trials else alpha, delta, SHARES)


@lru_cache(maxsize=64)
def attainable_bounds(
    epsilon: float | None, delta: float, trials: int, independent: bool, alpha: float
) -> dict[str, float]:
    """Lower bounds of a perfect attacker with ``trials`` trials, by name: medians of `REPEATS` simulations.

    The attacker sees the release of the Gaussian mechanism with ``epsilon`` at ``delta``, or of randomised
    response if ``delta`` is 0. If ``epsilon`` is None, the release has no noise and no guess is wrong. Names,
    ``independent`` and ``alpha`` are as in `canary_bounds`.
    """
    seen = []
    for repeat in range(REPEATS):
        generator = np.random.default_rng([repeat, trials])
        present = generator.random(trials) < 0.5
        if epsilon is None:
            scores = present.astype(float)
        elif delta > 0:
            scores = generator.normal(size=trials) + gaussian_mu(epsilon, delta) * present
        else:
            scores = np.where(generator.random(trials) < expit(epsilon), present, ~present).astype(float)
        seen.append(canary_bounds(scores[~present], scores[present], independent, alpha, delta))
    names = dict.fromkeys(name for found in seen for name in found)
    return {name: float(np.median([found.get(name, 0.0) for found in seen])) for name in names}


def gaussian_mu(epsilon: float, delta: float) -> float:
    """Mu of the Gaussian mechanism with ``epsilon`` at ``delta`` > 0."""
    return 1 / float(get_sigma_gaussian(epsilon, delta))
