"""Lower bound on epsilon: the privacy loss of the mechanism on one named pair of neighbouring data sets.

The pair is the one that an attacker would choose. All records but one give clipped vectors in one direction.
Whenever the differing record is drawn, it reverses the clipped vector that depends on it. If the record has a
vector of its own that is added or removed, it adds a vector in a direction that no other record has. So a
step releases N(0, z^2) without the record, and a mixture of N(j, z^2) with it. j is the number of vectors
that the record reverses or adds, and z the noise multiplier. If neighbours add or remove a person, the record
is all of the person's examples, which add vectors in one direction. Nothing is trained: the bound is for the
mechanism alone, for any network.

A first release (`SampledGaussian.first_release`) is left out: an attacker who ignores it knows no more.

All numbers are rounded down. Steps are composed by a Fourier transform of their privacy losses on a grid. The
rounding errors are bounded as in Gopi, Lee and Wutschitz 2021, and are subtracted. A second bound, in closed
form, uses only the sum of all releases. It is exact for a single step, and for steps on all examples. It also
holds at deltas that are too small for a Fourier transform.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, inf, log, log1p, sqrt

import numpy as np
from scipy.special import log_ndtr, logsumexp
from scipy.stats import binom

from dprepro.accountants.allocation import LEAST_NOISE, rounded_epoch, spacing_of
from dprepro.accountants.gaussian import least_epsilon, step_distances, successes
from dprepro.accountants.pld import LEAST_EPSILON, MOST_AT_ONCE, ROUNDING
from dprepro.accountants.records import SampledGaussian

# of one step's release; a cell's probabilities are exact, so more cells only sharpen the bound
CELLS = 100_000
REACH = 10.0  # standard deviations that cells cover beyond the outermost means
# relative loss of epsilon from the grid of losses
GRAIN = 0.001
MOST_POINTS = 2**22  # of the grid of all steps' losses; a larger grid is coarsened
ERROR_SHARE = 1e-3  # probability of each error of the grid, as a share of delta; it is subtracted
RARE = 1e-20  # probability of the numbers of draws that are left out
THRESHOLDS = 500  # on the sum of all releases, tried twice, the second time around the best
MIXED = 200  # largest number of parts of the mixture for the sum of all releases


@dataclass(frozen=True)
class WorstPair:
    """Log probabilities of the K outcomes of a step or epoch, without and with the differing record."""

    without: np.ndarray  # (K,)
    within: np.ndarray  # (K,)
    times: int  # number of such steps or epochs


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
        shared: whether an added or removed record reverses a clipped vector of other records.

    Returns:
        An epsilon at which the steps are not (epsilon, ``delta``)-DP; 0 if no such epsilon is shown.
    """
    if not 0 < bound < inf:
        return 0.0
    limit = _empty_set_limit(spending, steps, delta) if shared else inf
    if limit < inf:
        delta *= 1 + ERROR_SHARE  # covers empty mini-sets
    epsilon = _epsilon_of_sum(spending, steps, delta)
    # a bound below `LEAST_EPSILON` is no grid's, and with so much noise an epoch's grid takes long
    if (spending.sampling != "allocation" or bound >= LEAST_EPSILON) and (pair := _pair(spending, steps)):
        removed, added = pair.within - pair.without, pair.without - pair.within
        epsilon = max(
            epsilon,
            _epsilon(removed, np.exp(pair.within), pair.times, delta, bound),
            _epsilon(added, np.exp(pair.without), pair.times, delta, bound),
        )
    return min(epsilon, limit)


def _empty_set_limit(spending: SampledGaussian, steps: int, delta: float) -> float:
    """Largest epsilon at which empty mini-sets of a Poisson sample change delta by at most `ERROR_SHARE`.

    An empty mini-set has no vector that the record could reverse. This changes delta by at most (1 +
    e^epsilon) times the probability of an empty mini-set.

    Returns:
        The epsilon.
    """
    if spending.sampling not in ("poisson", "allocation") or spending.rate == spending.sets:
        return inf
    # each example is in a mini-set with probability m / (N k), and each of the k mini-sets may be empty
    log_empty = (spending.examples - 1) * log1p(-spending.rate / spending.sets)
    return max(0.0, log(ERROR_SHARE * delta / (steps * spending.sets)) - log_empty - log(2))


@lru_cache(maxsize=8)
def _pair(spending: SampledGaussian, steps: int) -> WorstPair | None:
    noise = spending.noise_multiplier
    if spending.sampling == "shuffled":
        # one batch of an epoch has the record: distribution of the largest release of the epoch
        batches = spending.examples // spending.batch
        edges = np.linspace(-REACH, 1 / noise + REACH, CELLS + 1)
        outside = log_ndtr(edges) * batches
        inside = log_ndtr(edges) * (batches - 1) + log_ndtr(edges - 1 / noise)
        without, within = (_log_difference(logs[1:], logs[:-1]) for logs in (outside, inside))
        # an epoch leaves out the examples that don't fill a last batch
        included = batches * spending.batch / spending.examples
        if included < 1:
            within = np.logaddexp(within + log(included), without + log1p(-included))
        # an incomplete epoch is left out, because it may not reach the record
        return WorstPair(without, within, steps // batches)
    if spending.sampling == "allocation":
        return _pair_of_epochs(spending, steps)
    counts, probabilities = vector_counts(spending)
    edges = np.linspace(-REACH * noise, counts[-1] + REACH * noise, CELLS + 1)
    masses = [_normal_log_masses((edges - mean) / noise) for mean in (0, *counts)]
    unmoved = max(1 - probabilities.sum(), 1e-300)
    within = logsumexp(np.stack(masses), axis=0, b=np.array([unmoved, *probabilities])[:, None])
    return WorstPair(masses[0], within, steps)


def _pair_of_epochs(spending: SampledGaussian, steps: int) -> WorstPair | None:
    """Pair of a whole epoch of 'allocation', by rounded likelihood ratios; if there is none, of all steps.

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
    return WorstPair(without, within, max(epochs, 1))


def vector_counts(spending: SampledGaussian) -> tuple[np.ndarray, np.ndarray]:
    """Distribution of the number of a step's clipped vectors that depend on the record.

    For 'replacement', the mini-sets of a step are independent, and each has batch / sets draws.

    Args:
        spending: sampling, noise and sizes of one step.

    Returns:
        (K,) numbers >= 1, and their (K,) probabilities.
    """
    if spending.sampling != "replacement":
        return step_distances(spending)
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
    return _log_difference(log_ndtr(high), log_ndtr(low))


def _log_difference(high: np.ndarray, low: np.ndarray) -> np.ndarray:
    """Logarithms of e^``high`` - e^``low``, where ``high`` is at least ``low``; no digits cancel."""
    with np.errstate(divide="ignore"):
        return high + np.log(-np.expm1(np.minimum(low - high, -1e-300)))


def _epsilon(losses: np.ndarray, probabilities: np.ndarray, times: int, delta: float, bound: float) -> float:
    """Lower bound on epsilon at ``delta`` for ``times`` equal steps or epochs, each with ``losses`` (K,)."""
    possible = np.isfinite(losses) & (probabilities > 0)
    losses, probabilities = losses[possible], probabilities[possible]
    if times == 0 or not len(losses):
        return 0.0
    profile = _profile(losses, probabilities, times, delta, bound)
    if profile is None or profile(0.0) <= delta:
        return 0.0
    # just below the smallest sufficient epsilon, ``delta`` is exceeded
    return least_epsilon(
        lambda epsilons: np.array([profile(float(epsilon)) for epsilon in epsilons]), delta
    ) * (1 - 1e-8)


def _profile(
    losses: np.ndarray, probabilities: np.ndarray, times: int, delta: float, bound: float
) -> Callable[[float], float] | None:
    """Lower bound on delta, as a function of epsilon.

    Each loss is rounded to the nearest point of a grid, so a step's errors have a range of one ``grain``. By
    Hoeffding (1963), the sum of all errors is more than ``shortfall`` below its mean with a probability of at
    most ``error_probability``; the same holds above the mean. By Chernoff, the sum of all losses leaves the
    grid with at most this probability.

    Returns:
        The bound; None if ``delta`` is too small, or if there are too many steps or points of the grid.
    """
    error_probability = ERROR_SHARE * delta
    if delta <= ROUNDING * times or times > MOST_AT_ONCE:
        return None
    reach = sqrt(times / 2 * log(1 / error_probability))
    grain = GRAIN * max(bound, LEAST_EPSILON) / reach
    low, high = _span(losses, probabilities, times, error_probability)
    grain = max(grain, (high - low) / MOST_POINTS)
    shortfall = grain * reach
    indices = np.rint(losses / grain).astype(np.int64)
    # cells without a finite loss, and cells beyond the edges, are left out: this only lowers the bound
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
        exceeding = slice(np.searchsorted(values, epsilon, "right"), None)
        divergence = float(-(sums[exceeding] * np.expm1(epsilon - values[exceeding])).sum())
        return divergence - 3 * error_probability - ROUNDING * times

    return profile


def _epsilon_of_sum(spending: SampledGaussian, steps: int, delta: float) -> float:
    """Lower bound on epsilon from the sum of all releases: N(0, T z^2) against N(h, T z^2).

    T is the number of steps, h the random number of draws of the record, and z the noise multiplier.
    Let the sum exceed a threshold with probability a without the record and b with it. Then b <= e^epsilon a
    + delta at every threshold.

    Returns:
        The epsilon; 0 for 'replacement', for 'shuffled' with several batches, and without a whole epoch of
        'allocation'.
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
        draws, _, probabilities = successes(steps * (spending.group or 1), spending.rate)
    # parts of the mixture are merged, with their smallest number of draws: this only lowers the bound
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
    """Interval that the sum of ``times`` losses leaves with at most ``error_probability`` at each end."""
    weights = np.log(probabilities)
    mean = float((losses * probabilities).sum() / probabilities.sum())
    variance = max(float(((losses - mean) ** 2 * probabilities).sum()), 1e-300)
    # rates of the Chernoff bound, around the best rate for a normal sum
    rates = np.sqrt(-2 * log(error_probability) / (times * variance)) * np.geomspace(1e-4, 10, 40)
    endpoints = []
    for sign in (-1, 1):
        moments = np.array([logsumexp(sign * rate * losses + weights) for rate in rates])
        endpoints.append(sign * float(((times * moments - log(error_probability)) / rates).min()))
    return min(endpoints), max(endpoints)
