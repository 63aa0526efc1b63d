"""Reads training curves: `reports/histories/ROW.csv`."""

from bisect import insort
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean

from numpy import interp

from pipeline.results.histories import read_history
from pipeline.results.schema import Record

Curve = list[tuple[float, float]]  # (epoch, value), in order of epochs
History = dict[str, dict[str, dict[int, Curve]]]  # metric -> level -> seed -> curve


def read(path: Path) -> History:
    """Read the curves of every seed.

    Raises:
        UserError: the file is not a history.
    """
    history: History = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    for level, seed, _, epoch, metric, value in read_history(path):
        insort(history[metric][level][seed], (epoch, value))
    return history


def spending(record: Record) -> dict[str, dict[int, Curve]]:
    """Level -> seed -> an upper bound on what had been spent; levels without a bound have none."""
    curves: dict[str, dict[int, Curve]] = defaultdict(dict)
    for replica in record.replicas:
        if spent := replica.ledger.spent:
            epochs = replica.settings["batch"] / record.origins[replica.origin].examples
            curves[replica.level][replica.seed] = [(step * epochs, epsilon) for step, epsilon in spent]
    return curves


def averaged(curves: Mapping[int, Curve]) -> Curve:
    """The mean over seeds at every epoch that any of them has."""
    values: dict[float, list[float]] = defaultdict(list)
    for curve in curves.values():
        for epoch, value in curve:
            values[epoch].append(value)
    return [(epoch, fmean(values[epoch])) for epoch in sorted(values)]


def at(curve: Curve, epoch: float) -> float:
    """The value at an epoch, between two notes by linear interpolation."""
    epochs, values = zip(*curve, strict=True)
    return float(interp(epoch, epochs, values))


def averages(path: Path | None) -> dict[str, dict[str, Curve]]:
    """Metric -> level -> (epoch, mean over seeds), in order of epochs; empty where there is no history.

    Raises:
        UserError: the file is not a history.
    """
    if path is None:
        return {}
    return {
        metric: {level: averaged(curves) for level, curves in by_level.items()}
        for metric, by_level in read(path).items()
    }
