"""The rule for a comparison of our value with a printed one: equivalence within a declared margin."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import hypot, sqrt
from statistics import fmean, stdev
from typing import Literal

from scipy.special import stdtrit

from dprepro.pipeline.reporting.judging.intervals import LEVEL, NORMAL
from dprepro.pipeline.reporting.printed import NO_CONVERGENCE, Printed

Name = Literal["agrees", "above", "below", "inconclusive"]
FEWEST_SEEDS = 3
MOST_SEEDS = 100  # the largest number of seeds that is suggested for a cell
SHARE_MARGIN = 0.1  # margin of the share of converging seeds
# Tolerance, as a share of a printed value, because decimal numbers are inexact in binary. Without it 7.92
# would be further from 8.00 than 0.08.
BINARY = 1e-12


@dataclass(frozen=True)
class Verdict:
    """Verdict on a printed value."""

    name: Name
    offset: float | None = None  # ours minus the paper's, if it agrees and is surely not equal
    seeds: int | None = None  # number that would decide an inconclusive verdict; None: above `MOST_SEEDS`
    share: str = ""  # share of converging seeds in words, if it decided


def half_width(
    values: Sequence[float], error: float | None, test_error: float, seeds: int | None = None
) -> float:
    """Half the 95 % interval of our mean minus the printed value, for ``seeds`` values with this spread.

    ``error`` is the standard error that the paper prints, if any. ``test_error`` is the standard error from
    the finite test set, which all seeds share. ``seeds`` is by default the number of ``values``.
    """
    seeds = seeds or len(values)
    ours = float(stdtrit(seeds - 1, (1 + LEVEL) / 2)) * stdev(values) / sqrt(seeds)
    return hypot(ours, NORMAL * (error or 0.0), NORMAL * test_error)


def run_spread(values: Sequence[float], error: float | None) -> float:
    """Half the 95 % interval of the paper's run around its mean, if the paper prints no ``error``.

    A value without an error may be a single run. Its spread is taken to be that of our ``values``. With
    `half_width` this gives the prediction interval of one more run.
    """
    return float(stdtrit(len(values) - 1, (1 + LEVEL) / 2)) * stdev(values) if error is None else 0.0


def mean_verdict(
    values: Sequence[float], printed: float, error: float | None, margin: float, test_error: float = 0.0
) -> Verdict:
    """Verdict on a mean over `FEWEST_SEEDS` or more; `judge` and `half_width` have the arguments."""
    n, away = len(values), fmean(values) - printed
    binary, spread = BINARY * abs(printed), run_spread(values, error)

    def half(seeds: int) -> float:
        return half_width(values, error, test_error, seeds)

    def name_for(seeds: int) -> Name:
        return place(away, half(seeds), margin + binary, spread)

    name = name_for(n)
    if name == "inconclusive":
        return Verdict(name, seeds=_enough(n, name_for))
    return Verdict(name, away if name == "agrees" and abs(away) > half(n) + binary else None)


def computed_verdict(value: float, printed: float, margin: float, rounding: float) -> Verdict:
    """Verdict on a computed number. It agrees if it rounds to the printed number."""
    away, binary = value - printed, BINARY * abs(printed)
    name = place(away, 0.0, margin + binary)
    return Verdict(name, away if name == "agrees" and abs(away) > rounding + binary else None)


def convergence_verdict(converged: int, n: int, theirs: bool) -> Verdict | None:
    """Verdict on ``converged`` of ``n`` seeds; None for fewer than `FEWEST_SEEDS`.

    ``theirs`` is True if the paper's training converged.
    """
    if n < FEWEST_SEEDS:
        return None
    share = f"{converged} of {n} seeds converge"
    name = _share(converged, n, theirs)
    enough = None
    if name == "inconclusive":
        enough = _enough(n, lambda seeds: _share(round(seeds * converged / n), seeds, theirs))
    return Verdict(name, seeds=enough, share=share)


def _enough(n: int, verdict: Callable[[int], Name]) -> int | None:
    """Smallest number of seeds above ``n`` with a decided ``verdict``; None if it is above `MOST_SEEDS`."""
    return next((seeds for seeds in range(n + 1, MOST_SEEDS + 1) if verdict(seeds) != "inconclusive"), None)


def judge(
    values: Sequence[float],
    computed: bool,
    failed: Sequence[float],
    printed: Printed,
    margin: float,
    rounding: float,
    test_error: float = 0.0,
) -> Verdict | None:
    """Verdict on a cell; None if there can't be one.

    Args:
        values: one per seed, in the table's unit.
        computed: whether the cell is a single number, computed without training.
        failed: values of the seeds whose training did not converge.
        printed: the paper's cell. If some seeds failed and its value is above all of ``failed``, the paper's
            training converged, and the share of converging seeds decides.
        margin: in the table's unit.
        rounding: half a unit of the last printed digit.
        test_error: standard error of one accuracy from the finite test set, in the table's unit.
    """
    n = len(values)
    some_failed = 0 < len(failed) < n and printed.value is not None and printed.value > max(failed)
    if printed.words == NO_CONVERGENCE or some_failed:
        return convergence_verdict(n - len(failed), n, theirs=some_failed)
    if printed.value is None:
        return None
    if computed:
        return computed_verdict(values[0], printed.value, margin, rounding)
    return mean_verdict(values, printed.value, printed.error, margin, test_error)


def place(away: float, half: float, margin: float, spread: float = 0.0) -> Name:
    """Verdict on a difference ``away`` with interval ± ``half``, by the margin around zero.

    For 'above' and 'below', the interval also covers ``spread`` (`run_spread`).
    """
    if abs(away) + half <= margin:
        return "agrees"
    if abs(away) - hypot(half, spread) > margin:
        return "above" if away > 0 else "below"
    return "inconclusive"


def _share(converged: int, n: int, theirs: bool) -> Name:
    """Verdict on our share of converging seeds. The paper's share is 1 if ``theirs`` is True, otherwise 0."""
    from scipy.stats import binomtest  # the import takes a second

    low, high = binomtest(converged, n).proportion_ci(LEVEL, method="exact")
    near, far = (1 - low, 1 - high) if theirs else (high, low)
    if near <= SHARE_MARGIN:
        return "agrees"
    if far <= SHARE_MARGIN:
        return "inconclusive"
    return "below" if theirs else "above"
