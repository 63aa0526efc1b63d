"""Means over seeds and differences of means, with 95 % Student-t intervals.

The intervals cover the spread over seeds, not the error of the finite test set.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import fmean, variance

from scipy.special import ndtri, stdtrit

LEVEL = 0.95
NORMAL = float(ndtri((1 + LEVEL) / 2))


@dataclass(frozen=True)
class Mean:
    """A mean, or a difference of means, and half the width of its 95 % interval."""

    value: float
    half: float | None  # None: unknown, as for a single seed
    n: int  # seeds; in a difference the smaller number; 0: cells of one row have no seed in common

    @property
    def exact(self) -> bool:
        """Return True for a computed number, which has no seeds."""
        return self.n == 1 and self.half is not None


@dataclass(frozen=True)
class SeedValues:
    """Result of a row at a level."""

    by_seed: Mapping[int, float]
    mean: Mean

    @classmethod
    def of(cls, by_seed: Mapping[int, float]) -> "SeedValues":
        """Values of trained seeds, with their mean."""
        return cls(by_seed, mean(tuple(by_seed.values())))


def mean(values: Sequence[float]) -> Mean:
    """Mean of ``values``, one per seed."""
    n = len(values)
    half = float(stdtrit(n - 1, (1 + LEVEL) / 2)) * sqrt(variance(values) / n) if n > 1 else None
    return Mean(fmean(values), half, n)


def computed(value: float) -> Mean:
    """`Mean` of a computed number, which is exact and has no seeds."""
    return Mean(value, 0.0, 1)


def contrast(terms: Sequence[tuple[float, str, SeedValues]]) -> Mean:
    """Weighted sum of means; ``terms`` are (weight, key of the row, its result).

    Cells of one row are combined seed by seed, because their trainings are dependent. Cells of different rows
    are independent.
    """
    by_row: dict[str, list[tuple[float, SeedValues]]] = {}
    for weight, row, cell in terms:
        by_row.setdefault(row, []).append((weight, cell))
    constant, samples = 0.0, []
    for cells in by_row.values():
        if all(cell.mean.exact for _, cell in cells):
            constant += sum(weight * cell.mean.value for weight, cell in cells)
            continue
        seeds = set.intersection(*(set(cell.by_seed) for _, cell in cells))
        if not seeds:
            return Mean(sum(weight * cell.mean.value for weight, _, cell in terms), None, 0)
        samples.append([sum(weight * cell.by_seed[seed] for weight, cell in cells) for seed in sorted(seeds)])
    return _total(samples, constant) if samples else computed(constant)


def _total(samples: Sequence[Sequence[float]], constant: float) -> Mean:
    """Sum of a constant and the means of independent samples; interval for unequal variances (Welch 1947)."""
    value, n = constant + sum(map(fmean, samples)), min(map(len, samples))
    if n == 1:
        return Mean(value, None, n)
    parts = [(variance(sample) / len(sample), len(sample)) for sample in samples]
    total = sum(part for part, _ in parts)
    if total == 0:
        return Mean(value, 0.0, n)
    freedom = total**2 / sum(part**2 / (size - 1) for part, size in parts)
    return Mean(value, float(stdtrit(freedom, (1 + LEVEL) / 2)) * sqrt(total), n)
