"""Means over seeds and differences of means, with 95 % Student-t intervals.

The intervals cover the spread from seed to seed, not the finite test set.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import fmean, variance
from typing import Literal

from scipy.stats import t

LEVEL = 0.95


@dataclass(frozen=True)
class Mean:
    """A mean, or a difference of means, and half the width of its 95 % interval."""

    value: float
    half: float | None  # None: a single seed, whose spread nobody knows
    n: int  # seeds; the smaller number in a difference

    @property
    def exact(self) -> bool:
        """Whether it was computed, with no seed in it."""
        return self.n == 1 and self.half is not None

    @property
    def further_run(self) -> float:
        """Half the width of the 95 % prediction interval for one more seed."""
        return (self.half or 0.0) * sqrt(self.n + 1)

    def where(self, above: float | None, below: float | None) -> Literal["holds", "fails", "undecided"]:
        """Whether the interval lies within the bounds: 'holds', outside: 'fails', across: 'undecided'."""
        if self.half is None:
            return "undecided"
        low, high = self.value - self.half, self.value + self.half
        if (above is not None and high <= above) or (below is not None and low >= below):
            return "fails"
        inside = (above is None or low > above) and (below is None or high < below)
        return "holds" if inside else "undecided"


def mean(values: Sequence[float]) -> Mean:
    """Mean of one value a seed."""
    n = len(values)
    half = float(t.ppf((1 + LEVEL) / 2, n - 1)) * sqrt(variance(values) / n) if n > 1 else None
    return Mean(fmean(values), half, n)


def computed(value: float) -> Mean:
    """A number that nothing random is in."""
    return Mean(value, 0.0, 1)


def difference(left: Sequence[float], right: Sequence[float]) -> Mean:
    """``mean(left) - mean(right)`` of independent seeds with unequal spreads (Welch 1947)."""
    value, n = fmean(left) - fmean(right), min(len(left), len(right))
    if n == 1:
        return Mean(value, None, n)
    parts = [(variance(side) / len(side), len(side)) for side in (left, right)]
    total = sum(part for part, _ in parts)
    if total == 0:
        return Mean(value, 0.0, n)
    freedom = total**2 / sum(part**2 / (size - 1) for part, size in parts)
    return Mean(value, float(t.ppf((1 + LEVEL) / 2, freedom)) * sqrt(total), n)


def paired(left: Mapping[int, float], right: Mapping[int, float]) -> Mean:
    """``left - right`` by seed: of the same training, or of trainings that share more than chance."""
    return mean([left[seed] - right[seed] for seed in left.keys() & right.keys()])
