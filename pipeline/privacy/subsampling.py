"""Privacy loss distributions of Gaussian steps on samples of a fixed size, which dp-accounting does not have.

With dp-accounting's own of Poisson samples they give epsilon at delta and the trade-off curve, as upper
bounds: losses are rounded pessimistically (Doroshenko et al. 2022, 'Connect the dots').
"""

from dataclasses import dataclass
from functools import lru_cache, reduce
from math import inf, isfinite

import numpy as np
from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution, from_gaussian_mechanism

from pipeline.privacy import allocation
from pipeline.privacy.gaussian import gaussian_delta, least_epsilon
from pipeline.privacy.participation import step_distances
from pipeline.privacy.sampled_gaussian import SampledGaussian

# Probability of a step's losses that are too large to be told apart, and count as infinite.
INFINITE_LOSS_PROBABILITY = 1e-18
# No grid beyond this epsilon: sampling saves little there, and dp-accounting's numbers run out.
LARGEST_EPSILON = 1e5
# Nor below this one, of which a step's losses are so small a part that composing them takes for ever.
LEAST_EPSILON = 1e-3
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
        return amplified_delta(self.spending, np.asarray(epsilons))


def losses(
    spending: SampledGaussian, steps: int, delta: float, bound: float, coarseness: float = 1.0
) -> Losses | OneStep | None:
    """Losses of ``steps`` steps on a grid that suits their epsilon at ``delta``.

    Args:
        spending: the mechanism of a step.
        steps: number of steps.
        delta: at which epsilon is wanted.
        bound: an upper bound on that epsilon.
        coarseness: factor on the grid's interval; a coarse grid is faster, and its bounds are looser.

    Returns:
        The losses; None for 'shuffled', whose steps depend on each other, for epsilons outside
        `LEAST_EPSILON` to `LARGEST_EPSILON`, and for a delta that is lost in rounding.
    """
    independent = spending.sampling not in ("shuffled", "allocation")
    if steps == 1 and independent and spending.first_release is None:
        return OneStep(spending)
    if (
        spending.sampling == "shuffled"
        or (spending.sampling == "allocation" and spending.noise_multiplier < allocation.LEAST_NOISE)
        or not LEAST_EPSILON <= bound <= LARGEST_EPSILON
        or delta <= ROUNDING * steps
    ):
        return None
    interval = coarseness * _interval(spending, bound)
    grid = composed_losses(spending, steps, interval)
    while (
        isfinite(epsilon := grid.epsilon(delta))
        and (finer_interval := coarseness * _interval(spending, epsilon)) < interval / 2
    ):
        interval, grid = finer_interval, composed_losses(spending, steps, finer_interval)
    return grid if isfinite(epsilon) else None


def _interval(spending: SampledGaussian, epsilon: float) -> float:
    """1e-4, as dp-accounting has it, and less or more than that for epsilons far from 1."""
    if spending.sampling == "allocation":
        return allocation.spacing_of(spending.noise_multiplier, spending.batches // spending.participations)
    coarsest = _largest_loss(spending) / MOST_POINTS
    return max(1e-5 * epsilon, min(1e-4, 2e-4 * epsilon), coarsest)


def _largest_loss(spending: SampledGaussian) -> float:
    """The loss from which those of one step count as infinite."""
    return least_epsilon(lambda epsilons: amplified_delta(spending, epsilons), INFINITE_LOSS_PROBABILITY)


@lru_cache(maxsize=16)
def composed_losses(spending: SampledGaussian, steps: int, interval: float) -> Losses:
    """Privacy losses of ``steps`` steps and of an earlier release.

    Args:
        spending: not 'shuffled', whose steps depend on each other.
        steps: of the training.
        interval: of the grid.

    Returns:
        The losses.
    """
    if spending.first_release is not None:
        first_losses = from_gaussian_mechanism(spending.first_release, value_discretization_interval=interval)
        remaining = spending.model_copy(update={"first_release": None})
        return Losses(first_losses, ROUNDING).compose(composed_losses(remaining, steps, interval))
    if spending.sampling == "allocation":
        epochs = allocation.composed_epochs(
            spending.noise_multiplier, spending.batches, spending.participations, steps, interval
        )
        return Losses(epochs, ROUNDING * steps * spending.participations)
    if spending.sampling == "poisson":
        step_losses = from_gaussian_mechanism(
            spending.noise_multiplier, value_discretization_interval=interval, sampling_prob=spending.rate
        )
    else:
        step_losses = _step_losses(spending, interval)
    rounding = ROUNDING * steps
    if steps == 1:  # composing it with nothing takes as long as with others
        return Losses(step_losses, rounding)
    # the more at a time the better, as each composition leaves out what hardly ever happens
    repetitions, remainder = divmod(steps, MOST_AT_ONCE)
    parts = [step_losses.self_compose(MOST_AT_ONCE).self_compose(repetitions)] if repetitions else []
    parts += [step_losses.self_compose(remainder)] if remainder else []
    return Losses(reduce(lambda first, second: first.compose(second), parts), rounding)


def amplified_delta(spending: SampledGaussian, epsilons: np.ndarray) -> np.ndarray:
    """Delta of one step for data sets that differ in one example replaced.

    With p the probability that the example is drawn at all, P(j) that it moves the release by j distances,
    and alpha = 1 + (e^epsilon - 1) / p: delta(epsilon) = sum_j P(j) delta_j(log alpha), delta_j the
    Gaussian's own.

    Without replacement this is p delta_1, exact: Theorem 11 of Zhu, Dong and Wang 2022, and Dong, Roth and
    Su's C_p. With replacement it is Theorem 10 of Balle, Barthe and Gaboardi 2018: an upper bound, and the
    same where j is 0 or 1.

    Args:
        spending: sampling, noise and sizes of one step.
        epsilons: (K,) >= 0.

    Returns:
        (K,) deltas.
    """
    distances, probabilities = step_distances(spending)
    inner_epsilons = np.logaddexp(0.0, _log_expm1(epsilons) - np.log(probabilities.sum()))
    return gaussian_delta(inner_epsilons[:, None], distances / spending.noise_multiplier) @ probabilities


def _log_expm1(values: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore"):
        return np.log(-np.expm1(-values)) + values


def _step_losses(spending: SampledGaussian, interval: float) -> PrivacyLossDistribution:
    """Losses of one step: the pair of distributions whose delta is `amplified` at every epsilon >= 0.

    Replacing is symmetric, so the pair may be swapped: at epsilon < 0 delta is 1 - e^epsilon + e^epsilon
    delta(-epsilon), and a loss -l has e^-l times the probability of l. A larger delta than the sampling's own
    only makes the bound larger; the kink at 0 is convex.

    Returns:
        The losses.
    """
    last_index = max(1, int(np.ceil(_largest_loss(spending) / interval)))
    deltas = amplified_delta(spending, interval * np.arange(last_index + 1))
    # Delta is drawn as straight lines over e^epsilon, above the true one as that is convex; where they bend
    # there is probability. Beyond the last point delta stays what it is there: losses without end.
    increments = np.append(np.diff(deltas), 0.0)
    positive_masses = np.maximum(
        (increments[1:] - np.exp(interval) * increments[:-1]) / np.expm1(interval), 0.0
    )
    indices = np.arange(1, last_index + 1)
    negative_masses = np.exp(-interval * indices) * positive_masses
    zero_mass = max(0.0, 1.0 - positive_masses.sum() - negative_masses.sum() - deltas[-1])
    losses = np.concatenate([-indices[::-1], [0], indices]).tolist()
    probabilities = np.concatenate([negative_masses[::-1], [zero_mass], positive_masses]).tolist()
    return PrivacyLossDistribution.create_from_rounded_probability(
        dict(zip(losses, probabilities, strict=True)), float(deltas[-1]), interval
    )
