"""Training curves as CSV, one value per line."""

import csv
import io
from collections.abc import Iterable
from math import isclose
from pathlib import Path
from typing import Any

from dprepro.errors import UserError
from dprepro.pipeline.results.records import HISTORY_COLUMNS
from dprepro.pipeline.results.schema import Evaluated

ACCURACY = "validation_accuracy"
# Largest difference between a curve's end and the measured accuracy of the same weights, by rounding on two
# machines, or if each test draws new noise
ROUNDING, REDRAWN = 1e-3, 0.1

Line = tuple[Any, ...]  # of `HISTORY_COLUMNS`


def history_csv(lines: Iterable[Line]) -> str:
    """Training curves as CSV, sorted by replica, metric and step."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(HISTORY_COLUMNS)
    for level, seed, step, epoch, metric, value in sorted(
        lines, key=lambda line: (line[0], line[1], line[4], line[2])
    ):
        writer.writerow([level, seed, step, f"{epoch:.4f}", metric, f"{value:.6g}"])
    return text.getvalue()


def read_history(path: Path) -> list[Line]:
    """Lines of a file written by `history_csv`.

    Raises:
        UserError: the file is missing, or has another form.
    """
    try:
        with path.open(newline="", encoding="utf-8") as file:
            return [
                (str.strip(line["level"]), int(line["seed"]), int(line["step"]), float(line["epoch"]),
                 str.strip(line["metric"]), float(line["value"]))
                for line in csv.DictReader(file)
            ]  # fmt: skip
    except (OSError, ValueError, KeyError, TypeError, csv.Error) as problem:
        raise UserError(f"{path}: no training curves; `git checkout {path}` brings them back") from problem


def curve_difference(replica: Evaluated, lines: Iterable[Line]) -> str | None:
    """Message on a difference between a replica's measured validation accuracy and its curve's last value.

    Both are for the same weights and examples. None: the two values agree, or one is missing.
    """
    measured = replica.metrics.get(ACCURACY)
    curve = {
        step: value for *key, step, _, metric, value in lines if (*key, metric) == (*replica.key, ACCURACY)
    }
    if measured is None or not curve:
        return None
    end = curve[max(curve)]
    tolerance = REDRAWN if "test_accuracy_draws_std" in replica.metrics else ROUNDING
    if isclose(measured, end, abs_tol=tolerance):
        return None
    return f"{ACCURACY} is {measured:g}, and its training curve ends at {end:g}"
