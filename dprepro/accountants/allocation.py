"""Privacy loss distributions of random allocation: balls and bins (Feldman and Shenfeld 2025 and 2026).

Every epoch puts each example into one of its t batches, independently and uniformly. Neighbouring data sets
differ in one example, added or removed: its gradient appears or disappears.

The likelihood ratio of an epoch's releases, with the example to without it, is W = (X_1 + ... + X_t) / t with
X_i = exp((2 x_i - 1) / (2 z^2)). z is the noise multiplier, and x_i the i-th release along the example's
gradient, in units of the distance that the example moves it. Without the example, each X_i is log-normal with
mean 1. Delta is the expectation of a convex function of W: of (W - e^epsilon)_+ if the example is removed,
and of (1 - e^epsilon W)_+ if it is added. So a distribution with the same mean that is larger in the convex
order gives an upper bound on delta in both directions, also after composition. `epoch_ratio` is such a
distribution on a grid of log W. It splits a value between two points of the grid so that the mean stays. The
error is of second order in the grid's spacing.

For a lower bound, `rounded_epoch` rounds the sum in W to the grid after each addition. This is a
post-processing of an epoch's releases, and its distributions with and without the example are exact.

An epoch in which each example is in k of t batches counts as k epochs of t / k batches, an upper bound: a
uniform choice of k batches is a choice of one batch in each block of a random partition, and knowing the
partition only helps the attacker.
"""

from collections.abc import Callable, Iterator
from functools import lru_cache, reduce
from math import ceil, exp, expm1, floor, log, log1p, sqrt
from typing import NamedTuple, TypeVar

import attrs
import numpy as np
from dp_accounting.dp_event import DpEvent
from dp_accounting.pld.pld_pmf import DensePLDPmf
from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution
from scipy.special import ndtr

# Spacing of an epoch's grid in standard deviations of its privacy loss; and the largest and least spacing,
# with which log(2) has two million points
FINENESS, LARGEST_SPACING, LEAST_SPACING = 0.05, 0.01, 3e-7
MOST_POINTS = 100_000  # of one log-normal's grid
MOST_PRODUCTS = 4e8  # of points in one sum, a second or two; a grid with more is coarsened
REACH = 11.0  # standard deviations that the grid of a log-normal covers beyond both means
RARE = 1e-24  # probability of each end of a grid that is cut off
LEAST_NOISE = 0.06  # smallest noise multiplier; with less, exponentials of losses overflow
NODES, WEIGHTS = np.polynomial.legendre.leggauss(5)

Law = TypeVar("Law")
# Function of a value's distance above a grid point, in spacings, and of the spacing. It yields the offset of
# each grid point that receives mass of the value, and the share of the mass.
Placement = Callable[[float, float], Iterator[tuple[int, float]]]


class Masses(NamedTuple):
    """Distribution on the grid: the k-th mass, from 0, is at the value exp(spacing (first + k))."""

    first: int
    values: np.ndarray  # (K,)

    def logs(self, spacing: float) -> np.ndarray:
        """(K,) logarithms of the points."""
        return spacing * (self.first + np.arange(len(self.values)))


class Ratio(NamedTuple):
    """Distribution of a likelihood ratio if the example is absent."""

    masses: Masses
    zero: float  # probability of 0
    beyond: float  # part of the expectation that lies above all points; its probability counts as 0


class Rounded(NamedTuple):
    """Distributions of a rounded likelihood ratio, without and with the example, on the same points."""

    without: Masses
    within: Masses


def spacing_of(noise_multiplier: float, batches: int) -> float:
    """Spacing of the grid of an epoch's privacy losses (log W)."""
    exponent = noise_multiplier**-2
    variance = min(exponent, log1p(expm1(min(exponent, 50.0)) / batches))
    spacing = min(FINENESS * sqrt(variance), LARGEST_SPACING)
    width = exponent + 2 * REACH / noise_multiplier
    # summands further apart than -log(spacing) are summed all at once
    apart = min(width, -log(spacing))
    return max(spacing, LEAST_SPACING, width / MOST_POINTS, sqrt(width * apart / MOST_PRODUCTS))


@attrs.frozen
class RandomAllocationDpEvent(DpEvent):
    """Event of an epoch of ``steps`` steps; each example is in ``selected`` of them, at random."""

    steps: int
    selected: int
    event: DpEvent


def composed_epochs(
    noise_multiplier: float, batches: int, participations: int, steps: int, spacing: float
) -> PrivacyLossDistribution:
    """Upper bound on the privacy losses of ``steps`` steps, on a grid of ``spacing``.

    Args:
        noise_multiplier: standard deviation of the noise divided by the distance that an example moves a
            release.
        batches: batches of an epoch.
        participations: batches of an epoch that an example is in. With more than one, an incomplete epoch
            counts as a whole one.
        steps: at least 1.
        spacing: spacing of the grid of losses.

    Returns:
        Losses of removing the example and of adding it.
    """
    epochs, begun = divmod(steps, batches)
    if participations > 1:
        epochs, begun = epochs + (begun > 0), 0
    # sizes of the blocks of a partition of an epoch, one block for each participation
    size, larger = divmod(batches, participations)
    parts = [(size, size, epochs * (participations - larger)), (size + 1, size + 1, epochs * larger)]
    parts.append((size, begun, 1 if begun else 0))
    losses = (
        (epoch_losses(noise_multiplier, block, done, spacing), times) for block, done, times in parts if times
    )
    composed = [one if times == 1 else one.self_compose(times) for one, times in losses]
    return reduce(lambda first, second: first.compose(second), composed)


@lru_cache(maxsize=32)
def epoch_losses(
    noise_multiplier: float, batches: int, steps: int, spacing: float
) -> PrivacyLossDistribution:
    """Upper bound on privacy losses of an epoch's first ``steps`` steps; arguments as in `epoch_ratio`."""
    masses, zero, beyond = epoch_ratio(noise_multiplier, batches, steps, spacing)
    removed = masses.values * np.exp(masses.logs(spacing))
    last = masses.first + len(removed) - 1
    return PrivacyLossDistribution(
        DensePLDPmf(spacing, masses.first, removed, beyond, True),
        DensePLDPmf(spacing, -last, masses.values[::-1].copy(), zero, True),
    )


def epoch_ratio(noise_multiplier: float, batches: int, steps: int, spacing: float) -> Ratio:
    """Upper bound, in the convex order, on the likelihood ratio of an epoch's first steps.

    Args:
        noise_multiplier: standard deviation of the noise divided by the distance that the example moves a
            release.
        batches: t, batches of the epoch.
        steps: completed steps, from 1 to t.
        spacing: spacing of the grid of log W.

    Returns:
        A distribution with mean 1.
    """

    def add(first: Ratio, second: Ratio, counts: tuple[int, int]) -> Ratio:
        masses = _sum(first.masses, second.masses, spacing, _split)
        for law, zero in ((first, second.zero), (second, first.zero)):
            start = law.masses.first - masses.first
            masses.values[start : start + len(law.masses.values)] += zero * law.masses.values
        total = Ratio(masses, first.zero * second.zero, first.beyond + second.beyond)
        # sums with 0 lie log(2) below the others: kept, they would make the grid as wide as that
        return _trimmed(total, spacing, RARE + first.zero + second.zero)

    total = _repeated(_log_normal(noise_multiplier, batches, spacing), steps, add)
    missing = 1 - steps / batches  # probability that the example is in a later batch of the epoch
    return _raised(total, missing, spacing) if steps < batches else total


@lru_cache(maxsize=8)
def rounded_epoch(noise_multiplier: float, batches: int, steps: int, spacing: float) -> Rounded:
    """Exact distributions of the rounded ratio of an epoch's first steps; arguments as in `epoch_ratio`."""

    def add(first: Rounded, second: Rounded, counts: tuple[int, int]) -> Rounded:
        # the example is in one of the summands
        within = _sum(first.within, second.without, spacing, _nearest)
        if first is not second:
            other = _sum(second.within, first.without, spacing, _nearest)
            mean = np.average([within.values, other.values], axis=0, weights=counts)
            within = Masses(within.first, mean)
        return _cut(Rounded(_sum(first.without, second.without, spacing, _nearest), within))

    first, last = _span(noise_multiplier, batches, spacing)
    edges = (np.arange(first, last + 2) - 0.5) * spacing + log(batches)
    edges[0], edges[-1] = -np.inf, np.inf
    mean = noise_multiplier**-2 / 2
    leaf = (Masses(first, _normal_masses((edges + shift) * noise_multiplier)) for shift in (mean, -mean))
    without, within = _repeated(Rounded(*leaf), steps, add)
    mixture = np.average([within.values, without.values], axis=0, weights=[steps, batches - steps])
    return Rounded(without, Masses(within.first, mixture))


def _repeated(one: Law, count: int, add: Callable[[Law, Law, tuple[int, int]], Law]) -> Law:
    """Sum of ``count`` independent copies of ``one``; ``add`` gets two sums and their numbers of copies."""
    power, copies = one, 1
    total, added = None, 0
    while True:
        if count & copies:
            total = power if total is None else add(total, power, (added, copies))
            added += copies
        if added == count:
            assert total is not None, "count is at least 1"
            return total
        power, copies = add(power, power, (copies, copies)), 2 * copies


def _span(noise_multiplier: float, batches: int, spacing: float) -> tuple[int, int]:
    """First and last grid point for log(X / batches), with X one of the X_i of the module's docstring."""
    reach = noise_multiplier**-2 / 2 + REACH / noise_multiplier
    return floor((-reach - log(batches)) / spacing), ceil((reach - log(batches)) / spacing)


def _log_normal(noise_multiplier: float, batches: int, spacing: float) -> Ratio:
    """Distribution of X / batches, X as in `_span`; each cell's mass is split between the cell's ends."""
    first, last = _span(noise_multiplier, batches, spacing)
    left = np.arange(first, last) * spacing
    # all terms of these integrals are positive, and smooth: no digits are lost
    inside = spacing * (NODES + 1) / 2
    z_scores = (left[:, None] + inside + log(batches)) * noise_multiplier + 0.5 / noise_multiplier
    densities = WEIGHTS * np.exp(-(z_scores**2) / 2) * noise_multiplier * spacing / sqrt(8 * np.pi)
    values = np.zeros(last - first + 1)
    values[1:] += densities @ (np.expm1(inside) / expm1(spacing))
    values[:-1] += densities @ (exp(spacing) * -np.expm1(inside - spacing) / expm1(spacing))
    # below and above the grid there is less than `RARE`
    return Ratio(Masses(first, values), RARE, RARE)


def _normal_masses(edges: np.ndarray) -> np.ndarray:
    """Probabilities of a standard normal between rising ``edges``."""
    left, right = edges[:-1], edges[1:]
    mirrored = left > 0
    return ndtr(np.where(mirrored, -left, right)) - ndtr(np.where(mirrored, -right, left))


def _split(distance: float, spacing: float) -> Iterator[tuple[int, float]]:
    """Two grid points around a value, with shares of its mass that keep the mean; see `Placement`."""
    below = floor(distance)
    share = expm1(spacing * (distance - below)) / expm1(spacing)
    yield below, 1 - share
    yield below + 1, share


def _nearest(distance: float, spacing: float) -> Iterator[tuple[int, float]]:
    """Grid point nearest to a value, with all of its mass; see `Placement`."""
    yield floor(distance + 0.5), 1.0


def _sum(first: Masses, second: Masses, spacing: float, place: Placement) -> Masses:
    """Distribution of the sum of two independent variables; ``place`` puts each sum on points of the grid."""
    low = min(first.first, second.first)
    high = max(first.first + len(first.values), second.first + len(second.values))
    total = Masses(low, np.zeros(high - low + ceil(log(2) / spacing) + 1))
    if first is second:
        _add_smaller(total, first, first, 1, spacing, place)
        total.values[:] *= 2
        _add_diagonal(total, first, first, 0, spacing, place)
    else:
        _add_smaller(total, first, second, 0, spacing, place)
        _add_smaller(total, second, first, 1, spacing, place)
    return total


def _add_smaller(
    total: Masses, larger: Masses, smaller: Masses, least: int, spacing: float, place: Placement
) -> None:
    """Add to ``total`` all sums of a point of ``larger`` and one of ``smaller`` at least ``least`` below."""
    split = place is _split
    # at this distance or more, a sum lies in the larger summand's own cell
    far = 1 + floor(-log(expm1(spacing if split else spacing / 2)) / spacing)
    far = max(far, least)
    nearest = larger.first - (smaller.first + len(smaller.values) - 1)
    furthest = larger.first + len(larger.values) - 1 - smaller.first
    for apart in range(max(least, nearest), min(far, furthest + 1)):
        _add_diagonal(total, larger, smaller, apart, spacing, place)
    # all smaller summands together: a split is linear in them
    index = larger.first + np.arange(len(larger.values)) - far - smaller.first
    inside = index >= 0
    if not inside.any():
        return
    at = np.minimum(index[inside], len(smaller.values) - 1)
    masses = larger.values[inside]
    start = larger.first - total.first + int(np.argmax(inside))
    below = np.cumsum(smaller.values)[at]
    if not split:
        total.values[start : start + len(masses)] += masses * below
        return
    scale = smaller.logs(spacing)
    # moments in units of the larger summand, so that nothing overflows
    moments = np.cumsum(smaller.values * np.exp(scale - scale[-1]))[at]
    moments *= np.exp(scale[-1] - larger.logs(spacing)[inside]) / expm1(spacing)
    total.values[start : start + len(masses)] += masses * (below - moments)
    total.values[start + 1 : start + 1 + len(masses)] += masses * moments


def _add_diagonal(
    total: Masses, larger: Masses, smaller: Masses, apart: int, spacing: float, place: Placement
) -> None:
    """Add to ``total`` all sums of a point of ``larger`` and the one of ``smaller`` ``apart`` below it."""
    begin = max(larger.first, smaller.first + apart)
    end = min(larger.first + len(larger.values), smaller.first + len(smaller.values) + apart)
    if begin >= end:
        return
    products = (
        larger.values[begin - larger.first : end - larger.first]
        * smaller.values[begin - apart - smaller.first : end - apart - smaller.first]
    )
    for offset, share in place(log1p(exp(-spacing * apart)) / spacing, spacing):
        start = begin + offset - total.first
        total.values[start : start + len(products)] += share * products


def _raised(law: Ratio, constant: float, spacing: float) -> Ratio:
    """Distribution of the ratio plus a positive ``constant``; a value's mass is split between two points."""
    masses = law.masses
    values = np.append(np.exp(masses.logs(spacing)), 0.0) + constant
    weights = np.append(masses.values, law.zero)
    points = np.log(values) / spacing
    below = np.floor(points).astype(int)
    shares = np.clip(np.expm1(spacing * (points - below)) / expm1(spacing), 0.0, 1.0)
    first = int(below.min())
    size = int(below.max()) - first + 2
    split = np.bincount(below - first, weights * (1 - shares), size)
    split += np.bincount(below - first + 1, weights * shares, size)
    return Ratio(Masses(first, split), 0.0, law.beyond)


def _trimmed(law: Ratio, spacing: float, rare: float) -> Ratio:
    """Distribution without its rare values, ``rare`` of the lowest; the expectation stays.

    They are moved to kept points, 0 and `Ratio.beyond`.

    Returns:
        The distribution.
    """
    masses, logs = law.masses, law.masses.logs(spacing)
    moments = masses.values * np.exp(logs)
    low = int(np.searchsorted(np.cumsum(masses.values), rare))
    high = len(logs) - 1 - int(np.searchsorted(np.cumsum(moments[::-1]), RARE))
    values = masses.values[low : high + 1].copy()
    values[0] += (masses.values[:low] * np.exp(logs[:low] - logs[low])).sum()
    zero = law.zero - (masses.values[:low] * np.expm1(logs[:low] - logs[low])).sum()
    values[-1] += masses.values[high + 1 :].sum()
    beyond = law.beyond + (masses.values[high + 1 :] * (np.exp(logs[high + 1 :]) - exp(logs[high]))).sum()
    return Ratio(Masses(masses.first + low, values), float(zero), float(beyond))


def _cut(laws: Rounded) -> Rounded:
    """Distributions whose rare values are moved to the first and the last point."""
    both = laws.without.values + laws.within.values
    low = int(np.searchsorted(np.cumsum(both), RARE))
    high = len(both) - 1 - int(np.searchsorted(np.cumsum(both[::-1]), RARE))
    cut = []
    for masses in laws:
        values = masses.values[low : high + 1].copy()
        values[0] += masses.values[:low].sum()
        values[-1] += masses.values[high + 1 :].sum()
        cut.append(Masses(masses.first + low, values))
    return Rounded(*cut)
