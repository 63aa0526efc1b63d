"""The rule: what a difference and its 95 % interval say about a printed value, an effect or a claim.

Everything rests on `where`: does an interval lie within bounds, outside them, or across one? A margin is set
in advance in the paper's file. `privacy` says whether a claimed epsilon is proven. Intervals are Student's t;
they cover the spread over seeds, not the error of the finite test set.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import hypot, sqrt
from statistics import fmean, stdev, variance
from typing import Literal, NamedTuple

from scipy.special import ndtri, stdtrit

from dprepro.accountants.records import up
from dprepro.pipeline.params.papers import NO_CONVERGENCE, Printed

Value = Literal["reproduced", "higher", "lower", "uncertain", "not run"]
Effect = Literal[
    "same direction", "opposite", "none in either", "only in one", "uncertain", "confounded", "not run"
]
Privacy = Literal["proven", "exceeded", "not proven", "no claim"]
Claim = Literal["supported", "contradicted", "mixed", "not proven", "not tested"]
Part = Literal["holds", "fails", "uncertain", "not proven", "not run"]  # of a claim

LEVEL = 0.95
NORMAL = float(ndtri((1 + LEVEL) / 2))
FEWEST_SEEDS = 3
# Largest ratio of a bound to a claim that may come from float32 rounding alone, such as of noise scales.
ROUNDING = 1 + 1e-6
# Decimal numbers are inexact in binary. Without this tolerance 7.92 would be further from 8.00 than 0.08.
BINARY = 1e-12


@dataclass(frozen=True)
class Mean:
    """A mean, or a difference of means, and half the width of its 95 % interval."""

    value: float
    half_width: float | None  # None: unknown, as for a single seed
    n: int  # seeds; in a difference the smaller number; 0: cells of one row have no seed in common

    @property
    def exact(self) -> bool:
        """Return True for a computed number, which has no seeds."""
        return self.n == 1 and self.half_width is not None


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


class Judged(NamedTuple):
    """Status of a printed value, ours minus the paper's, and half the 95 % interval of this difference."""

    status: Value
    difference: float | None = None  # None: the paper prints no number
    half_width: float | None = None


def where(
    value: float, half: float, low: float | None, high: float | None
) -> Literal["within", "outside", "across"]:
    """Place of the interval ``value`` ± ``half`` relative to the bounds; None is no bound."""
    tolerance = BINARY * max(abs(low or 0.0), abs(high or 0.0))
    least, most = value - half, value + half
    if (low is None or least >= low - tolerance) and (high is None or most <= high + tolerance):
        return "within"
    outside = (low is not None and most < low) or (high is not None and least > high)
    return "outside" if outside else "across"


def spread(values: Sequence[float]) -> float:
    """Half the 95 % interval of a single run around its mean, from our runs ``values``."""
    return float(stdtrit(len(values) - 1, (1 + LEVEL) / 2)) * stdev(values) if len(values) > 1 else 0.0


def value(
    values: Sequence[float],
    printed: Printed,
    margin: float,
    *,
    computed: bool = False,
    rounding: float = 0.0,
    converged: int | None = None,
    seeds: int = 1,
    best: float = 100.0,
) -> Judged:
    """Judge a printed value.

    'reproduced': the interval of our mean, with the paper's standard error if it prints one, lies within the
    margin around the printed number. 'higher', 'lower': not reproduced, and the interval excludes zero. If
    the paper prints no error, its number is a single run, and the interval includes the spread of our runs.

    A printed 'No-convergence' is reproduced if our mean is below half of ``best``. If only some of our
    trainings converged, Fisher's exact test against the paper's ``seeds`` trainings decides.

    Args:
        values: ours, one per seed, in the table's unit.
        printed: the paper's cell.
        margin: in the table's unit.
        computed: whether ours is one computed number, without seeds.
        rounding: half a unit of the last printed digit. A computed number this close is equal.
        converged: number of our trainings that converged; None: all.
        seeds: number of the paper's trainings.
        best: best accuracy that the paper prints in the line.
    """
    n = len(values)
    if n < FEWEST_SEEDS and not computed:
        return Judged("not run")
    if printed.value is None:
        if printed.words != NO_CONVERGENCE:
            return Judged("uncertain")
        return Judged("reproduced" if fmean(values) < best / 2 else "higher")
    difference = fmean(values) - printed.value
    margin += BINARY * abs(printed.value)
    if computed:
        inside = abs(difference) <= max(margin, rounding + BINARY * abs(printed.value))
        return Judged("reproduced" if inside else _side(difference), difference, 0.0)
    ours = float(stdtrit(n - 1, (1 + LEVEL) / 2)) * stdev(values) / sqrt(n)
    half = hypot(ours, NORMAL * (printed.error or 0.0))
    half_width = half if printed.error is not None else hypot(half, spread(values))
    if converged is not None and 0 < converged < n:
        return Judged("lower" if _fewer(converged, n, seeds) else "uncertain", difference, half_width)
    if where(difference, half, -margin, margin) == "within":
        return Judged("reproduced", difference, half_width)
    return Judged(_side(difference) if abs(difference) > half_width else "uncertain", difference, half_width)


def _side(difference: float) -> Literal["higher", "lower"]:
    return "higher" if difference > 0 else "lower"


def _fewer(converged: int, n: int, seeds: int) -> bool:
    """Return True if significantly fewer of ``n`` trainings converge than all of the paper's ``seeds``."""
    from scipy.stats import fisher_exact  # the import takes a second

    table = [[converged, n - converged], [seeds, 0]]
    return float(fisher_exact(table, alternative="less").pvalue) < 1 - LEVEL


def effect(ours: Mean, theirs: float, noise: float, margin: float) -> Effect:
    """Judge a difference of two results.

    The paper's effect is clear if it exceeds its ``noise``. Ours is clear if its interval excludes zero; it
    is none if its interval lies within the margin.

    Args:
        ours: our difference.
        theirs: the paper's difference.
        noise: half the 95 % interval of ``theirs``, by printed errors or else by our spread of single runs.
        margin: in the table's unit.
    """
    if ours.half_width is None:
        return "not run"
    clear = where(ours.value, ours.half_width, 0.0, None) != "across" and abs(ours.value) > ours.half_width
    small = where(ours.value, ours.half_width, -margin, margin) == "within"
    if abs(theirs) > noise:
        if clear:
            return "same direction" if ours.value * theirs > 0 else "opposite"
        return "only in one" if small else "uncertain"
    if small:
        return "none in either"
    if clear:
        return "same direction" if ours.value * theirs > 0 else "only in one"
    return "uncertain"


def part(ours: Mean, above: float | None, below: float | None) -> Part:
    """Judge a part of a claim: whether our value or difference lies above and below the claimed bounds."""
    if ours.half_width is None:
        return "not run"
    place = where(ours.value, ours.half_width, above, below)
    return {"within": "holds", "outside": "fails", "across": "uncertain"}[place]  # type: ignore[return-value]


def claim(parts: Iterable[Part]) -> Claim:
    """Judge a claim by its parts.

    'contradicted': at least one part fails and none holds. 'supported': more than half of all parts hold, and
    the others did not run. 'not tested': fewer hold, and the others did not run. 'not proven': no bound that
    ran is proven or exceeded. 'mixed': anything else.
    """
    parts = list(parts)
    ran = {each for each in parts if each != "not run"}
    if ran == {"not proven"}:
        return "not proven"
    if ran <= {"holds"}:
        return "supported" if 2 * parts.count("holds") > len(parts) else "not tested"
    return "contradicted" if "fails" in ran and "holds" not in ran else "mixed"


def privacy(claimed: float | None, upper: float | None, lower: float | None, claims: bool = True) -> Privacy:
    """Judge a claimed epsilon by an upper and a lower bound for the mechanism as it ran.

    Args:
        claimed: None: no epsilon is claimed, or one too large for a float.
        upper: None: nothing is proven.
        lower: None: no lower bound is known.
        claims: whether an epsilon is claimed.
    """
    if claimed is None:
        return "not proven" if claims else "no claim"
    if lower is not None and lower > ROUNDING * claimed:
        return "exceeded"
    # ledgers have bounds rounded up, so the smallest excess is one unit of the last digit
    return "proven" if upper is not None and upper <= up(ROUNDING * claimed) else "not proven"
