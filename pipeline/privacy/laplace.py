"""Laplace noise on quantities that are released once, and what that spends."""

from math import fsum, inf, isinf, log
from typing import TYPE_CHECKING, Annotated

import numpy as np
from pydantic import Field

from pipeline.fields import Count, Positive, Strict

if TYPE_CHECKING:
    from dp_accounting import DpEvent

# Of `coarse_event`: what a coordinate spends is rounded up by less than this factor, or to this share of the
# mean.
STEP, LEAST = 1.02, 0.01


class Laplace(Strict):
    """Independent Laplace noise on the coordinates of a quantity, added once.

    Replacing one example moves the coordinates that are listed here, each by at most ``distance``.
    """

    quantity: str  # 'relevances', 'inputs', 'labels'
    claimed: Positive  # epsilon by the method's own reckoning
    distance: Positive | None  # None: nothing bounds it, because the noise is not the example's own
    # b of the noise on each coordinate that may move; its std is sqrt(2) b
    scales: Annotated[tuple[Positive, ...], Field(min_length=1)]
    repeats: Count = 1  # coordinates that each of the scales stands for
    span: Positive  # of the exact values, for the laboratory: noise much larger than it leaves nothing

    @property
    def epsilon(self) -> float:
        """What it really spends, at delta 0: the sum of distance / b (Dwork et al. 2006); may be infinite.

        No less will do for neighbours that differ by the whole distance in every coordinate.
        """
        return self.repeats * fsum(self._epsilons)

    @property
    def noise(self) -> tuple[float, float, float]:
        """Standard deviation of a coordinate's noise: least, median, largest."""
        deviations = np.sqrt(2) * np.array(self.scales)
        return float(deviations.min()), float(np.median(deviations)), float(deviations.max())

    @property
    def _epsilons(self) -> np.ndarray:
        """(K,) what a coordinate of each scale spends."""
        if self.distance is None:
            return np.array([inf])
        return self.distance / np.array(self.scales)

    def event(self) -> "DpEvent":
        """What it spends, in the words of dp-accounting."""
        from dp_accounting import NonPrivateDpEvent  # whose import takes seconds

        return NonPrivateDpEvent() if isinf(self.epsilon) else self._event(self._epsilons)

    def coarse_event(self) -> "DpEvent":
        """`event` of a private release, with the scales rounded down to a few hundred: an upper bound.

        Less noise lets an attacker see no less: he can add some himself. A single scale stays as it is.

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
        """``inputs 784 x Laplace(6.27 to 912)``: each coordinate's noise over its distance."""
        if self.distance is None:
            return f"{self.quantity} NonPrivate"
        smallest, largest = min(self.scales) / self.distance, max(self.scales) / self.distance
        ratio = f"{smallest:.6g}" if smallest == largest else f"{smallest:.6g} to {largest:.6g}"
        return f"{self.quantity} {self.repeats * len(self.scales)} x Laplace({ratio})"


class Releases(Strict):
    """All that a training gets to see of the private data."""

    laplace: tuple[Laplace, ...]

    @property
    def epsilon(self) -> float:
        """What they really spend together, at delta 0: the sum, which may be infinite."""
        return fsum(release.epsilon for release in self.laplace)

    @property
    def claimed(self) -> float:
        """What they spend together by the method's own reckoning."""
        return fsum(release.claimed for release in self.laplace)

    def with_known_noise(self) -> "Releases":
        """The same with noise that others can repeat, and so take away: nothing bounds what they tell."""
        return Releases(
            laplace=tuple(release.model_copy(update={"distance": None}) for release in self.laplace)
        )

    def event(self) -> "DpEvent":
        """What they spend, in the words of dp-accounting."""
        from dp_accounting import ComposedDpEvent

        return ComposedDpEvent([release.event() for release in self.laplace])

    def coarse_event(self) -> "DpEvent":
        """`event`, where it is private, with few scales: it never spends less."""
        from dp_accounting import ComposedDpEvent

        return ComposedDpEvent([release.coarse_event() for release in self.laplace])

    def __str__(self) -> str:
        """Every quantity's noise in one line."""
        return ", ".join(map(str, self.laplace))
