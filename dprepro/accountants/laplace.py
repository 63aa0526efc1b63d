"""Laplace noise on quantities that are released once, and its epsilon."""

from math import fsum, inf, isinf, log
from typing import TYPE_CHECKING, Annotated

import numpy as np
from pydantic import Field

from dprepro.fields import Count, Positive, Strict

if TYPE_CHECKING:
    from dp_accounting import DpEvent

# `coarse_event` rounds a coordinate's epsilon up by a factor below STEP. Epsilons below LEAST times the mean
# become about LEAST times the mean.
STEP, LEAST = 1.02, 0.01


class Laplace(Strict):
    """Independent Laplace noise on the coordinates of a quantity, added once.

    Replacing one example moves each of these coordinates by at most ``distance``.
    """

    quantity: str  # 'relevances', 'inputs', 'labels'
    claimed: Positive  # epsilon by the paper's own accounting
    distance: Positive | None  # None: there is no bound, for example if examples share the noise
    # scale b of the noise on each coordinate that may move; its standard deviation is sqrt(2) b
    scales: Annotated[tuple[Positive, ...], Field(min_length=1)]
    repeats: Count = 1  # coordinates with each scale
    span: Positive  # largest minus smallest exact value, not released; far larger noise hides all information

    @property
    def epsilon(self) -> float:
        """Epsilon at delta 0: sum over coordinates of distance / scale (Dwork et al. 2006); may be infinite.

        It is exact for neighbours that differ by the whole distance in every coordinate.
        """
        return self.repeats * fsum(self._epsilons)

    @property
    def noise(self) -> tuple[float, float, float]:
        """Standard deviation of a coordinate's noise: smallest, median, largest."""
        deviations = np.sqrt(2) * np.array(self.scales)
        return float(deviations.min()), float(np.median(deviations)), float(deviations.max())

    @property
    def _epsilons(self) -> np.ndarray:
        """(K,) epsilon of one coordinate with each of K scales."""
        if self.distance is None:
            return np.array([inf])
        return self.distance / np.array(self.scales)

    def event(self) -> "DpEvent":
        """Event for dp-accounting."""
        from dp_accounting import NonPrivateDpEvent  # its import takes seconds

        return NonPrivateDpEvent() if isinf(self.epsilon) else self._event(self._epsilons)

    def coarse_event(self) -> "DpEvent":
        """`event` of a private release with at most a few hundred different scales: an upper bound.

        The scales are rounded down. With less noise an attacker learns at least as much, because the attacker
        could add the missing noise. A single scale stays unchanged.

        Returns:
            The event.
        """
        epsilons = self._epsilons
        largest = epsilons.max()
        powers = np.floor(np.log(largest / np.maximum(epsilons, LEAST * epsilons.mean())) / log(STEP))
        return self._event(np.maximum(epsilons, largest * STEP**-powers))

    def _event(self, epsilons: np.ndarray) -> "DpEvent":
        from dp_accounting import ComposedDpEvent, LaplaceDpEvent, SelfComposedDpEvent

        distinct, counts = np.unique(epsilons, return_counts=True)
        return ComposedDpEvent(
            [
                SelfComposedDpEvent(LaplaceDpEvent(1 / epsilon), self.repeats * count)
                for epsilon, count in zip(distinct.tolist(), counts.tolist(), strict=True)
            ]
        )

    def __str__(self) -> str:
        """``inputs 784 x Laplace(6.27 to 912)``: range of a coordinate's scale divided by the distance."""
        if self.distance is None:
            return f"{self.quantity} NonPrivate"
        smallest, largest = min(self.scales) / self.distance, max(self.scales) / self.distance
        ratio = f"{smallest:.6g}" if smallest == largest else f"{smallest:.6g} to {largest:.6g}"
        return f"{self.quantity} {self.repeats * len(self.scales)} x Laplace({ratio})"


class Releases(Strict):
    """All releases of private data to a training."""

    laplace: tuple[Laplace, ...]

    @property
    def epsilon(self) -> float:
        """Total epsilon at delta 0, by the proven sensitivities; may be infinite."""
        return fsum(release.epsilon for release in self.laplace)

    @property
    def claimed(self) -> float:
        """Total epsilon by the paper's own accounting."""
        return fsum(release.claimed for release in self.laplace)

    def with_known_noise(self) -> "Releases":
        """The same releases with known noise: it can be subtracted, so no epsilon holds."""
        return Releases(
            laplace=tuple(release.model_copy(update={"distance": None}) for release in self.laplace)
        )

    def event(self) -> "DpEvent":
        """Event for dp-accounting."""
        from dp_accounting import ComposedDpEvent

        return ComposedDpEvent([release.event() for release in self.laplace])

    def coarse_event(self) -> "DpEvent":
        """`event` of private releases with few different scales: an upper bound."""
        from dp_accounting import ComposedDpEvent

        return ComposedDpEvent([release.coarse_event() for release in self.laplace])

    def __str__(self) -> str:
        """Noise of every quantity in one line."""
        return ", ".join(map(str, self.laplace))
