"""Lower bound on epsilon: the spending on one named pair of neighbouring data sets.

The pair is the one that an attacker would choose. All records but one give a clipped vector in one direction.
The differing record turns around the clipped vector that it is in, whenever it is drawn; or, if it has a
vector of its own that is added or removed, adds one in a direction without others. A step then releases N(0,
z^2) without the record, and a mixture of N(j, z^2) with it, j the number of vectors that it turned around.
Nothing is trained: this is the spending of the mechanism on that pair, for any network.

A first release (`SampledGaussian.first_release`) is left out, because ignoring it gives the attacker no more
information.

All roundings go down. Steps are composed by a Fourier transform of their privacy losses on a grid; its
rounding errors are bounded as in Gopi, Lee and Wutschitz 2021, and are subtracted. A second bound comes from
the sum of all releases alone, in closed form: exact for a single step or for whole batches, and a bound at
deltas too small for a transform.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, inf, log, log1p, sqrt

import numpy as np
from scipy.special import log_ndtr, logsumexp
from scipy.stats import binom

from pipeline.privacy.allocation import LEAST_NOISE, rounded_epoch, spacing_of
from pipeline.privacy.gaussian import least_epsilon
from pipeline.privacy.participation import successes
from pipeline.privacy.sampled_gaussian import SampledGaussian
from pipeline.privacy.subsampling import MOST_AT_ONCE, ROUNDING

CELLS = (
    100_000  # of one step's release; a cell's probabilities are exact, so more cells only sharpen the bound
)
REACH = 10.0  # standard deviations that cells cover beyond the outermost means
# relative loss of epsilon by the grid of losses
GRAIN = 0.001
MOST_POINTS = 2**22  # of the grid of all steps' losses; a larger grid is coarsened
ERROR_SHARE = 1e-3  # probability of each error of the grid, as a share of delta, which is subtracted
RARE = 1e-20  # probability of the numbers of draws that are left out
THRESHOLDS = 500  # on the sum of all releases, tried twice, the second time around the best
MIXED = 200  # largest number of parts of the mixture for the sum of all releases


@dataclass(frozen=True)
class Pair:
    """Log probabilities of (K,) outcomes without the differing record and with it, of one step or epoch."""

    without: np.ndarray
    within: np.ndarray
    times: int  # number of such steps


@lru_cache(maxsize=256)
def worst_epsilon(
    spending: SampledGaussian, steps: int, delta: float, bound: float, shared: bool = False
) -> float:
    """Lower bound on epsilon on the worst known pair of neighbouring data sets.

    Args:
        spending: mechanism of a step.
        steps: number of steps.
        delta: delta of the bound.
        bound: an upper bound on epsilon, for the choice of the grid.
        shared: whether the record turns a vector of others around even if it is added or removed.

    Returns:
        An epsilon that the steps exceed at ``delta``; 0 if none is shown.
    """
    if not 0 < bound < inf:
        return 0.0
    epsilon = _epsilon_of_sum(spending, steps, delta)
    if pair := _pair(spending, steps):
        removed, added = pair.within - pair.without, pair.without - pair.within
        epsilon = max(
            epsilon,
            _epsilon(removed, np.exp(pair.within), pair.times, delta, bound),
            _epsilon(added, np.exp(pair.without), pair.times, delta, bound),
        )
    return min(epsilon, _empty_set_limit(spending, steps, delta)) if shared else epsilon


def _empty_set_limit(spending: SampledGaussian, steps: int, delta: float) -> float:
    """Largest epsilon at which a Poisson sample's empty mini-sets don't matter.

    An empty mini-set has no vector to turn around; the effect is at most (1 + e^epsilon) times its
    probability.

    Returns:
        The epsilon.
    """
    if spending.sampling not in ("poisson", "allocation") or spending.rate == spending.sets:
        return inf
    # a mini-set has each example with probability m / (N k), and k of them may be empty
    log_empty = (spending.examples - 1) * log1p(-spending.rate / spending.sets)
    return max(0.0, log(ERROR_SHARE * delta / (steps * spending.sets)) - log_empty - log(2))


@lru_cache(maxsize=8)
def _pair(spending: SampledGaussian, steps: int) -> Pair | None:
    noise = spending.noise_multiplier
    if spending.sampling == "shuffled":
        # one of an epoch's batches has the record: distribution of the largest of their releases
        batches = spending.examples // spending.batch
        edges = np.linspace(-REACH, 1 / noise + REACH, CELLS + 1)
        without = _log_masses(log_ndtr(edges) * batches)
        within = _log_masses(log_ndtr(edges) * (batches - 1) + log_ndtr(edges - 1 / noise))
        # an epoch leaves out the examples that don't fill a last batch
        included = batches * spending.batch / spending.examples
        mixture = (
            within if included == 1 else np.logaddexp(within + log(included), without + log1p(-included))
        )
        # without an incomplete epoch, which may not reach the record
        return Pair(without, mixture, steps // batches)
    if spending.sampling == "allocation":
        return _pair_of_epochs(spending, steps)
    counts, probabilities = vector_counts(spending)
    edges = np.linspace(-REACH * noise, counts[-1] + REACH * noise, CELLS + 1)
    masses = [_normal_log_masses((edges - mean) / noise) for mean in (0, *counts)]
    unmoved = max(1 - probabilities.sum(), 1e-300)
    within = logsumexp(np.stack(masses), axis=0, b=np.array([unmoved, *probabilities])[:, None])
    return Pair(masses[0], within, steps)


def _pair_of_epochs(spending: SampledGaussian, steps: int) -> Pair | None:
    """Rounded likelihood ratios of allocated epochs: of whole ones, or of one incomplete epoch.

    Returns:
        The pair; None for more than one participation in an epoch, or if exponentials overflow.
    """
    noise, batches = spending.noise_multiplier, spending.batches
    if spending.participations > 1 or noise < LEAST_NOISE:
        return None
    epochs, done = divmod(steps, batches)
    laws = rounded_epoch(noise, batches, batches if epochs else done, spacing_of(noise, batches))
    possible = (laws.without.values > 0) & (laws.within.values > 0)
    without, within = (np.log(law.values[possible]) for law in laws)
    return Pair(without, within, max(epochs, 1))


def vector_counts(spending: SampledGaussian) -> tuple[np.ndarray, np.ndarray]:
    """Law of the number of a step's clipped vectors that the record is in.

    For independent draws, each mini-set has as many draws as it has places, and the sets are identically
    distributed.

    Args:
        spending: sampling, noise and sizes of one step.

    Returns:
        (K,) numbers >= 1, and their (K,) probabilities.
    """
    if spending.sampling != "replacement":
        return np.array([1]), np.array([spending.rate])
    size = spending.batch // spending.sets
    included = -np.expm1(size * log1p(-1 / spending.examples))
    counts = np.arange(1, spending.sets + 1)
    probabilities = binom.pmf(counts, spending.sets, included)
    likely = max(1, int((binom.sf(counts - 1, spending.sets, included) >= RARE).sum()))
    return counts[:likely], probabilities[:likely]


def _normal_log_masses(edges: np.ndarray) -> np.ndarray:
    """Log probabilities of a standard normal between rising ``edges``, precise in both tails."""
    left, right = edges[:-1], edges[1:]
    # edges on the right are mirrored, because the distribution function is close to 1 there
    mirrored = left > 0
    low, high = np.where(mirrored, -right, left), np.where(mirrored, -left, right)
    top = log_ndtr(high)
    with np.errstate(divide="ignore"):
        return top + np.log(-np.expm1(np.minimum(log_ndtr(low) - top, -1e-300)))


def _log_masses(logarithms: np.ndarray) -> np.ndarray:
    """Log probabilities between edges, from the logarithms of the distribution function at the edges."""
    low, high = logarithms[:-1], logarithms[1:]
    with np.errstate(divide="ignore"):
        return high + np.log(-np.expm1(np.minimum(low - high, -1e-300)))


def _epsilon(losses: np.ndarray, probabilities: np.ndarray, times: int, delta: float, bound: float) -> float:
    """Epsilon that ``times`` draws of (K,) losses with these probabilities exceed at ``delta``."""
    possible = np.isfinite(losses) & (probabilities > 0)
    losses, probabilities = losses[possible], probabilities[possible]
    if times == 0 or not len(losses):
        return 0.0
    profile = _profile(losses, probabilities, times, delta, bound)
    if profile is None or profile(0.0) <= delta:
        return 0.0
    # a value just below the smallest sufficient epsilon is exceeded
    return least_epsilon(
        lambda epsilons: np.array([profile(float(epsilon)) for epsilon in epsilons]), delta
    ) * (1 - 1e-8)


def _profile(
    losses: np.ndarray, probabilities: np.ndarray, times: int, delta: float, bound: float
) -> Callable[[float], float] | None:
    """Lower bound on delta at an epsilon.

    A loss is rounded to the nearest point, so that a step's errors are within half a grain of their mean. By
    Hoeffding (1963), all errors together fall below their mean by more than ``shortfall`` with probability
    ``error_probability`` at most, and exceed it likewise. By Chernoff, so does a sum leave the grid.

    Returns:
        The bound; None if the grid would get too coarse.
    """
    error_probability = ERROR_SHARE * delta
    if delta <= ROUNDING * times or times > MOST_AT_ONCE:
        return None
    reach = sqrt(times / 2 * log(1 / error_probability))
    grain = GRAIN * bound / reach
    low, high = _span(losses, probabilities, times, error_probability)
    grain = max(grain, (high - low) / MOST_POINTS)
    shortfall = grain * reach
    indices = np.rint(losses / grain).astype(np.int64)
    # left-out cells, without a loss or beyond the edges, only lower the bound
    mean = float(((losses - indices * grain) * probabilities).sum() / probabilities.sum())
    points = 2 ** ceil(np.log2(max((high - low) / grain + 2 * reach + 2, indices.max() - indices.min() + 1)))
    if points > 4 * MOST_POINTS:
        return None
    step_masses = np.bincount((indices % points).astype(np.int64), weights=probabilities, minlength=points)
    sums = step_masses if times == 1 else np.fft.irfft(np.fft.rfft(step_masses) ** times, points)
    # the grid is circular; it begins below almost all sums of rounded losses
    first = int(np.floor((low - times * mean) / grain - reach))
    sums = np.roll(sums, -(first % points))
    values = (first + np.arange(points)) * grain + times * mean - shortfall

    def profile(epsilon: float) -> float:
        exceeding = values > epsilon
        divergence = float(-(sums[exceeding] * np.expm1(epsilon - values[exceeding])).sum())
        return divergence - 3 * error_probability - ROUNDING * times

    return profile


def _epsilon_of_sum(spending: SampledGaussian, steps: int, delta: float) -> float:
    """Lower bound on epsilon from the sum of all releases: N(0, T z^2) against N(h, T z^2).

    h is the number of draws. The sum exceeds a threshold with probability a without the record and b with it,
    and b <= e^epsilon a + delta at any threshold. 0 if the record may be drawn several times in a step, or
    once in an epoch's batches.

    Returns:
        The epsilon.
    """
    if spending.sampling == "replacement" or (spending.sampling == "shuffled" and spending.rate <= 0.5):
        return 0.0
    if spending.sampling == "allocation":
        epochs = steps // spending.batches
        draws, probabilities = np.array([epochs * spending.participations]), np.ones(1)
        steps = epochs * spending.batches
        if not epochs:
            return 0.0
    else:
        draws, _, probabilities = successes(steps, spending.rate)
    # merging parts, with the smallest number of draws of each, only lowers the bound
    stride = -(-len(draws) // MIXED)
    probabilities = np.add.reduceat(probabilities, np.arange(0, len(probabilities), stride))
    draws = draws[::stride]
    draws, probabilities = draws[probabilities > 0], probabilities[probabilities > 0]
    deviation = sqrt(steps) * spending.noise_multiplier

    def epsilons_at(thresholds: np.ndarray) -> np.ndarray:
        within = logsumexp(log_ndtr((draws - thresholds[:, None]) / deviation), axis=1, b=probabilities)
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            log_excess = within + np.log1p(-np.exp(np.minimum(log(delta) - within, 0.0)))
            return log_excess - log_ndtr(-thresholds / deviation)

    thresholds = np.linspace(0, draws[-1] + 40 * deviation, THRESHOLDS)
    best_index = int(np.argmax(epsilons_at(thresholds)))
    finer_thresholds = np.linspace(
        thresholds[max(best_index - 1, 0)], thresholds[min(best_index + 1, THRESHOLDS - 1)], THRESHOLDS
    )
    return max(0.0, float(epsilons_at(finer_thresholds).max())) * (1 - 1e-8)


def _span(
    losses: np.ndarray, probabilities: np.ndarray, times: int, error_probability: float
) -> tuple[float, float]:
    """Interval of the sum of ``times`` losses, except for ``error_probability`` on either side."""
    weights = np.log(probabilities)
    mean = float((losses * probabilities).sum() / probabilities.sum())
    variance = max(float(((losses - mean) ** 2 * probabilities).sum()), 1e-300)
    # around the best rate for a normal sum
    rates = np.sqrt(-2 * log(error_probability) / (times * variance)) * np.geomspace(1e-4, 10, 40)
    endpoints = []
    for sign in (-1, 1):
        moments = np.array([logsumexp(sign * rate * losses + weights) for rate in rates])
        endpoints.append(sign * float(((times * moments - log(error_probability)) / rates).min()))
    return min(endpoints), max(endpoints)
