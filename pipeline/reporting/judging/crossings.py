"""When one row's training overtakes another's, from the training curves."""

from bisect import bisect_right
from math import inf

from pipeline.reporting import histories
from pipeline.reporting.histories import Curve
from pipeline.reporting.judging.slowdown import METRIC
from pipeline.reporting.results import RowResult


def epochs(left: RowResult | None, right: RowResult | None, level: str) -> list[float | None]:
    """For each seed the epoch from which on ``left`` validates better to the end; None: it never does.

    A curve stands at its last value until the next, and at its very last for good: private training by
    gradients ends where its budget does, and the other goes on. Empty where one of them has no curve there.

    Raises:
        UserError: a row's history is not one.
    """
    ahead, behind = _curves(left, level), _curves(right, level)
    return [_overtaking(ahead[seed], behind[seed]) for seed in sorted(ahead.keys() & behind.keys())]


def _curves(row: RowResult | None, level: str) -> dict[int, Curve]:
    if row is None or row.history is None or level not in row.cells:
        return {}
    return histories.read(row.history).get(METRIC, {}).get(level, {})


def _overtaking(left: Curve, right: Curve) -> float | None:
    found = None
    for epoch in sorted({epoch for curve in (left, right) for epoch, _ in curve}, reverse=True):
        if _at(left, epoch) <= _at(right, epoch):
            break
        found = epoch
    return found


def _at(curve: Curve, epoch: float) -> float:
    """The last value noted by then; before its first note a training has nothing to show."""
    place = bisect_right(curve, (epoch, inf))
    return curve[place - 1][1] if place else -inf
