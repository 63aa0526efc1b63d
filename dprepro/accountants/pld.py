"""Privacy loss distributions: epsilon at delta, delta at epsilon, and the trade-off curve.

dp-accounting has none for Gaussian steps on samples of fixed size. All results are bounds, because losses are
rounded pessimistically (Doroshenko et al. 2022, 'Connect the dots').
"""

from dataclasses import dataclass
from functools import lru_cache, reduce
from math import ceil, inf, isfinite, log2

import numpy as np
from dp_accounting import ComposedDpEvent, DpEvent, NeighboringRelation, SelfComposedDpEvent
from dp_accounting.pld import PLDAccountant
from dp_accounting.pld.privacy_loss_distribution import (
    PrivacyLossDistribution,
    _create_pld_pmf_from_monotone_privacy_loss,
    from_gaussian_mechanism,
)
from dp_accounting.pld.privacy_loss_mechanism import AdjacencyType, MixtureGaussianPrivacyLoss

from dprepro.accountants.allocation import LEAST_NOISE, composed_epochs, spacing_of
from dprepro.accountants.gaussian import gaussian_delta, least_epsilon, mixture, step_distances
from dprepro.accountants.records import SampledGaussian

# probability of a step's largest losses, which count as infinite
INFINITE_LOSS_PROBABILITY = 1e-18
# largest epsilon for a grid: above, sampling saves little, and dp-accounting overflows
LARGEST_EPSILON = 1e5
# factor on the grid's interval for a person's examples, whose losses dp-accounting takes long to compute
GROUP_GRAIN = 5.0
LARGEST_POWER = 600.0  # largest epsilon whose delta is a difference of sums that e^epsilon multiplies
INVERTED = 1e-9  # precision of the release with a given loss; delta's error is its square
# smallest epsilon for a grid: below, a step's losses are so small that composing them takes too long
LEAST_EPSILON = 1e-3
MOST_POINTS = 2e5  # of one step's grid
# allowance for each step's error of delta from rounding in a Fourier transform: three times the largest error
# that was found with long doubles, which is about two units of a double's last place; not a proven bound
ROUNDING = 1e-15
# largest number of steps in one composition of dp-accounting, which first counts all possible losses
MOST_AT_ONCE = 1_000_000


@dataclass(frozen=True)
class PrivacyLosses:
    """Privacy losses on a grid, and a bound on delta's error from rounding, which is added to every delta."""

    grid: PrivacyLossDistribution
    rounding: float

    def epsilon(self, delta: float) -> float:
        """Upper bound on epsilon at ``delta``; infinity if ``delta`` is not above the error from rounding."""
        if delta <= self.rounding:
            return inf
        try:
            return _epsilon(self.grid, delta - self.rounding)
        except OverflowError:  # of exp(-loss) at losses below -709
            return least_epsilon(self.delta, delta)

    def delta(self, epsilons: np.ndarray) -> np.ndarray:
        """Upper bounds on delta at each epsilon, in the worse order of the two neighbouring data sets."""
        deltas = np.zeros(len(epsilons))
        for losses, within, without in self.tails():
            at = losses.searchsorted(epsilons)
            with np.errstate(over="ignore", invalid="ignore"):
                deltas = np.maximum(deltas, within[at] - np.exp(epsilons) * without[at])
        for large in np.flatnonzero(epsilons > LARGEST_POWER):
            deltas[large] = self.grid.get_delta_for_epsilon(float(epsilons[large]))
        return deltas + self.rounding

    def tails(self) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Losses >= 0 (K,), and (K,) probabilities of at least these by either data set; for both orders."""
        # at negative losses e^-loss would multiply errors of Fourier transforms, and dp-accounting has too
        # much mass there for adding an example; the largest losses, the rarest, are summed first
        found = []
        for part in [self.grid._pmf_remove] + [self.grid._pmf_add] * (not self.grid._symmetric):
            pmf = part.to_dense_pmf()
            values = (pmf._lower_loss + np.arange(pmf.size)) * pmf._discretization
            values, masses = values[values >= 0], np.asarray(pmf._probs)[values >= 0]
            both = np.stack([masses, np.exp(-values) * masses])[:, ::-1].cumsum(1)[:, ::-1]
            within, without = np.pad(both, ((0, 0), (0, 1)))
            found.append((np.append(values, inf), within + pmf._infinity_mass, without))
        return found

    def compose(self, other: "PrivacyLosses") -> "PrivacyLosses":
        """Losses of both mechanisms together; their grids must have the same interval."""
        return PrivacyLosses(self.grid.compose(other.grid), self.rounding + other.rounding + ROUNDING)


@lru_cache(maxsize=16)
def _epsilon(grid: PrivacyLossDistribution, delta: float) -> float:
    """Epsilon of the losses, for which dp-accounting takes up to a tenth of a second."""
    return float(grid.get_epsilon_for_delta(delta))


@dataclass(frozen=True)
class OneStep:
    """Losses of a single step, which need no grid."""

    spending: SampledGaussian

    def epsilon(self, delta: float) -> float:
        """Upper bound on epsilon at ``delta``."""
        return least_epsilon(self.delta, delta)

    def delta(self, epsilons: np.ndarray) -> np.ndarray:
        """Delta at each epsilon; for a Poisson sample this is for removing an example, the worse case."""
        return amplified_delta(self.spending, np.asarray(epsilons))


def losses(
    spending: SampledGaussian, steps: int, delta: float, bound: float, coarseness: float = 1.0
) -> PrivacyLosses | OneStep | None:
    """Losses of ``steps`` steps on a grid that suits their epsilon at ``delta``.

    Args:
        spending: mechanism of a step.
        steps: number of steps.
        delta: delta at which epsilon is wanted.
        bound: an upper bound on that epsilon.
        coarseness: factor on the grid's interval; a coarse grid is faster, and its bounds are looser.

    Returns:
        The losses. None for 'shuffled', whose steps depend on each other; for 'allocation' with too little
        noise; for epsilons outside `LEAST_EPSILON` to `LARGEST_EPSILON`; for delta within the rounding error.
    """
    independent = spending.sampling not in ("shuffled", "allocation")
    if steps == 1 and independent and spending.first_release is None and not spending.grouped:
        return OneStep(spending)
    if (
        spending.sampling == "shuffled"
        or (spending.sampling == "allocation" and spending.noise_multiplier < LEAST_NOISE)
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
    """Interval of the grid: 1e-4 for epsilons near 1, as in dp-accounting; smaller or larger for others."""
    if spending.sampling == "allocation":
        return spacing_of(spending.noise_multiplier, spending.batches // spending.participations)
    coarsest = _largest_loss(spending) / MOST_POINTS
    # the interval at `LEAST_EPSILON` is the finest one: finer grids take long, and tell nothing that matters
    interval = max(1e-5 * epsilon, min(1e-4, 2e-4 * max(epsilon, LEAST_EPSILON)), coarsest)
    return GROUP_GRAIN * interval if spending.grouped else interval


@lru_cache(maxsize=64)
def _largest_loss(spending: SampledGaussian) -> float:
    """Largest loss of one step that counts as finite."""
    return least_epsilon(lambda epsilons: amplified_delta(spending, epsilons), INFINITE_LOSS_PROBABILITY)


@lru_cache(maxsize=16)
def composed_losses(spending: SampledGaussian, steps: int, interval: float) -> PrivacyLosses:
    """Losses of the first release and ``steps`` steps, not 'shuffled', on a grid of ``interval``."""
    if spending.first_release is not None:
        first_losses = from_gaussian_mechanism(spending.first_release, value_discretization_interval=interval)
        remaining = spending.model_copy(update={"first_release": None})
        return PrivacyLosses(first_losses, ROUNDING).compose(composed_losses(remaining, steps, interval))
    if spending.sampling == "allocation":
        epochs = composed_epochs(
            spending.noise_multiplier, spending.batches, spending.participations, steps, interval
        )
        return PrivacyLosses(epochs, ROUNDING * steps * spending.participations)
    if spending.grouped:
        step_losses = _group_losses(spending, interval)
    elif spending.sampling == "poisson":
        step_losses = from_gaussian_mechanism(
            spending.noise_multiplier, value_discretization_interval=interval, sampling_prob=spending.rate
        )
    else:
        step_losses = _step_losses(spending, interval)
    rounding = ROUNDING * steps
    if steps == 1:  # composing a single step takes long too
        return PrivacyLosses(step_losses, rounding)
    # many at a time, because each composition truncates rare losses
    repetitions, remainder = divmod(steps, MOST_AT_ONCE)
    parts = [step_losses.self_compose(MOST_AT_ONCE).self_compose(repetitions)] if repetitions else []
    parts += [step_losses.self_compose(remainder)] if remainder else []
    return PrivacyLosses(reduce(lambda first, second: first.compose(second), parts), rounding)


class _Mixture(MixtureGaussianPrivacyLoss):
    """Losses of dp-accounting's mixture of Gaussians, inverted all at once; its own way takes seconds."""

    def _inverse_privacy_losses_with_range(
        self, privacy_losses: np.ndarray, bounds: tuple[float, float], _: float = INVERTED
    ) -> np.ndarray:
        low, high = (np.full(len(privacy_losses), end) for end in bounds)
        slopes = self.sensitivities / self._variance
        sign = 1.0 if self.adjacency_type == AdjacencyType.ADD else -1.0
        for _ in range(ceil(log2(max(bounds[1] - bounds[0], INVERTED) / INVERTED))):
            middle = (low + high) / 2
            powers = self._precompute_privacy_loss_constants + sign * middle[:, None] * slopes
            is_low = -sign * np.logaddexp.reduce(powers, axis=1) > privacy_losses  # losses fall with x
            low, high = np.where(is_low, middle, low), np.where(is_low, high, middle)
        return high


@lru_cache(maxsize=64)
def _group_losses(spending: SampledGaussian, interval: float) -> PrivacyLossDistribution:
    """Losses of one step of `SampledGaussian.group`, as dp-accounting's `from_mixture_gaussian_mechanism`."""
    removed, added = (
        _create_pld_pmf_from_monotone_privacy_loss(
            _Mixture(spending.noise_multiplier, *mixture(spending), adjacency_type=adjacency),
            value_discretization_interval=interval,
            use_connect_dots=True,
        )
        for adjacency in (AdjacencyType.REMOVE, AdjacencyType.ADD)
    )
    return PrivacyLossDistribution(removed, added)


def amplified_delta(spending: SampledGaussian, epsilons: np.ndarray) -> np.ndarray:
    """Delta of one step, for neighbouring data sets that replace one example.

    Let p be the probability that the example is drawn at all, P(j) the probability that it moves the release
    by j distances, and delta_j the delta of the Gaussian without sampling at j distances. Then delta(epsilon)
    = sum_j P(j) delta_j(log alpha) with alpha = 1 + (e^epsilon - 1) / p.

    Without replacement this is p delta_1(log alpha) and exact: Theorem 11 of Zhu, Dong and Wang 2022, and C_p
    of Dong, Roth and Su 2022. With replacement it is Theorem 10 of Balle, Barthe and Gaboardi 2018: an upper
    bound, exact if j is only 0 or 1.

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
    """Losses of one step, for the pair of distributions with delta `amplified_delta` at every epsilon >= 0.

    Replacing is symmetric, so the two distributions may be swapped. Then at epsilon < 0 delta is
    1 - e^epsilon + e^epsilon delta(-epsilon), and a loss of -l has e^-l times the probability of the loss l.
    If this delta is larger than the sampling's own delta, the bound only becomes larger. Its kink at 0 is
    convex.

    Returns:
        The losses.
    """
    last_index = max(1, int(np.ceil(_largest_loss(spending) / interval)))
    deltas = amplified_delta(spending, interval * np.arange(last_index + 1))
    # Delta is interpolated linearly in e^epsilon. It is convex, so the interpolation is an upper bound. Each
    # bend gives the probability of a loss. Beyond the last point delta is constant: such losses are infinite.
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


def pld_epsilon(event: DpEvent, delta: float, interval: float = 1e-4) -> float:
    """Epsilon by privacy loss distributions.

    The largest effect of rounding on delta is subtracted from delta first.

    Args:
        event: composed mechanism.
        delta: delta of the guarantee.
        interval: interval of the grid of losses.

    Returns:
        An upper bound at any ``interval``; infinity if delta is within the rounding error.
    """
    accountant = PLDAccountant(NeighboringRelation.ADD_OR_REMOVE_ONE, value_discretization_interval=interval)
    remaining_delta = delta - ROUNDING * _compositions(event)
    return float(accountant.compose(event).get_epsilon(remaining_delta)) if remaining_delta > 0 else inf


def _compositions(event: DpEvent) -> int:
    """Number of mechanisms in an event."""
    if isinstance(event, SelfComposedDpEvent):
        return event.count * _compositions(event.event)
    return sum(map(_compositions, event.events)) if isinstance(event, ComposedDpEvent) else 1
