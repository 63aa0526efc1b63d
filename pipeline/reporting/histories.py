"""Validation accuracies along a training, of `reports/histories/ROW.csv`."""

from bisect import insort
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean

from numpy import interp

from pipeline.results.histories import read_history

METRIC = "validation_accuracy"
Curve = list[tuple[float, float]]  # (epoch, share), in order of epochs


def curves(path: Path | None, level: str) -> dict[int, Curve]:
    """Curve of each seed at a level; empty without a history.

    Raises:
        UserError: the file is not a history.
    """
    by_seed: dict[int, Curve] = defaultdict(list)
    for at_level, seed, _, epoch, metric, value in read_history(path) if path else ():
        if (at_level, metric) == (level, METRIC):
            insort(by_seed[seed], (epoch, value))
    return dict(by_seed)


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
