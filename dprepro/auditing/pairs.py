"""A step on neighbouring data sets: how far its sums are apart, and its noise."""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf

import torch
from scipy.stats import chi2

from dprepro.clipping.functional import Tensors


@dataclass(frozen=True)
class SumsOfPair:
    """Sums and noise of a step on neighbouring data sets."""

    # for each tensor, the distance between the sums with and without the record, and the number of entries;
    # the distance between the releases instead, if it is larger than rounding explains
    moved: list[tuple[float, int]]
    noise: list[float]  # measured variance of the mechanism's noise on an entry of each tensor
    draws: int  # releases that measured the noise
    bypassed: bool  # whether the record moved the model under equal releases

    def mu(self, alpha: float) -> float:
        """Lower bound on a step's mu of Gaussian DP for this pair of data sets, at significance ``alpha``.

        The noise variance of each tensor is an upper confidence bound (chi-squared). If the record moves the
        model other than through the release, mu is infinite.
        """
        if self.bypassed:
            return inf
        total = 0.0
        for (moved, entries), variance in zip(self.moved, self.noise, strict=True):
            freedom = entries * (self.draws - 1)
            most = variance * freedom / float(chi2.ppf(alpha / len(self.moved), freedom))
            total += 0.0 if moved == 0 else moved**2 / most if most > 0 else inf
        return total**0.5


def noise_variances(release: Callable[[int], Tensors], draws: int) -> list[float]:
    """Variance of each tensor's entries over ``draws`` releases of the same sums."""
    first = release(0)
    totals = {name: torch.zeros(2, *value.shape, dtype=torch.float64) for name, value in first.items()}
    for draw in range(1, draws):
        for name, value in release(draw).items():
            apart = value.double() - first[name]
            totals[name] += torch.stack([apart, apart.square()])
    return [
        float((square - total.square() / draws).mean() / (draws - 1)) for total, square in totals.values()
    ]
