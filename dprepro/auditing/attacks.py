"""Scores of canaries from the releases of all steps of a training.

Each score tells releases with a canary from those without it. The log likelihood ratio is the best score
against a correct mechanism; the others prove nothing against one:

* Reused noise: difference, in a canary's direction, of each release from the one with the most similar noise.
* Ordered pass over the data: sum of releases in that direction, over the batches that would have the canary
  if examples were taken in order.
* Random allocation with the same batches in every epoch: log likelihood ratio for such batches.
"""

from math import log, log1p

import numpy as np
from scipy.special import logsumexp

from dprepro.accountants.records import SampledGaussian
from dprepro.accountants.worst_instance import vector_counts

ROUNDING = 1e-6  # rounding error of a release, in clipping bounds


def canary_scores(moved: np.ndarray, spending: SampledGaussian, examples: int) -> dict[str, np.ndarray]:
    """(R,) scores of R canaries, the first of ``examples``, for each attacker by name; as in `ratios`."""
    # batch of each canary in an ordered pass over the data
    phases = np.arange(moved.shape[1]) // spending.batch
    turns = (np.arange(len(moved))[:, None] % max(1, examples // spending.batch)) == phases
    scores = {
        "ratios": ratios(moved, spending),
        "repeats": repeats(moved),
        "order": (moved * turns).sum(0),
    }
    if spending.sampling == "allocation":
        scores["same_batches"] = ratios_of_same_batches(moved, spending)
    return scores


def repeats(releases: np.ndarray) -> np.ndarray:
    """(D,) scores of reused noise, one for each direction of ``releases`` (T, D).

    A score is a sum over the T steps: squared difference from the step with the most similar noise.
    """
    lengths = np.square(releases).sum(1)
    distances = lengths[:, None] + lengths - 2 * releases @ releases.T
    np.fill_diagonal(distances, np.inf)
    apart = np.abs(releases - releases[distances.argmin(1)])
    # in units of the step's median, because most canaries are not in the step's batch
    usual = np.median(apart, axis=1, keepdims=True).clip(ROUNDING)
    return np.asarray(np.square(apart / usual).sum(0))


def ratios(moved: np.ndarray, spending: SampledGaussian) -> np.ndarray:
    """(R,) log likelihood ratios of R canaries or runs, from the releases ``moved`` (T, R) of T steps.

    ``moved`` is in units of a record's effect on a release.
    """
    variance = spending.noise_multiplier**2
    if spending.sampling in ("shuffled", "allocation"):
        batches = spending.batches
        by_epoch = moved[: len(moved) // batches * batches].reshape(-1, batches, moved.shape[1])
        of_epoch = logsumexp((2 * by_epoch - 1) / (2 * variance), axis=1) - log(batches)
        return np.asarray(of_epoch.sum(0))
    counts, chances = vector_counts(spending)
    never = log1p(-min(chances.sum(), 1 - 1e-12))
    terms = [np.full_like(moved, never)]
    terms += [
        log(chance) + (2 * count * moved - count**2) / (2 * variance)
        for count, chance in zip(counts, chances, strict=True)
    ]
    return np.asarray(logsumexp(np.stack(terms), axis=0).sum(0))


def ratios_of_same_batches(moved: np.ndarray, spending: SampledGaussian) -> np.ndarray:
    """(R,) log likelihood ratios as in `ratios`, if random allocation gives each epoch the same batches."""
    epochs = len(moved) // spending.batches
    by_epoch = moved[: epochs * spending.batches].reshape(epochs, spending.batches, moved.shape[1])
    return np.asarray(logsumexp((2 * by_epoch - 1).sum(0) / (2 * spending.noise_multiplier**2), axis=0))
