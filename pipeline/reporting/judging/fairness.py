"""Fairness of a verdict at a training budget of our own: choices that may have worsened our number.

If the paper gives no budget, a verdict is fair under four conditions. The row had at least as many epochs as
the table's other lines. A search at this level chose its settings, and not at an edge of the grid. Its
validation accuracy no longer rises. Its seeds don't share one pretrained network.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isnan
from pathlib import Path
from typing import Any, Literal

import pandas as pd
from numpy import interp

from dprepro.pipeline.reporting.results import RowResult
from dprepro.pipeline.reporting.wording import number
from dprepro.pipeline.results.histories import ACCURACY
from dprepro.pipeline.results.records import HISTORY_COLUMNS, read_history
from dprepro.pipeline.results.schema import SearchRecord

Kind = Literal[
    "unequal budget",
    "edge of the grid",
    "no search at this level",
    "still learning",
    "one pretrained network for all seeds",
]
TENTH = 0.1  # last part of a training, in which validation accuracy must be flat
# Flat: at this rate, doubling the length of the training would gain at most the margin.
AGAIN = 1 / TENTH


@dataclass(frozen=True)
class Unfair:
    """A reason why a verdict is not fair."""

    kind: Kind
    words: str


def unfair(row: RowResult, level: str, others: Sequence[RowResult], margin: float) -> tuple[Unfair, ...]:
    """Reasons why our own choices may have worsened our number at a level; () if the verdict is fair.

    ``row`` and ``others`` decide the table's lines at the level. ``margin`` is in percentage points.
    """
    if row.budget != "own" or not row.trained:
        return ()
    found = [*_budget(row, level, others), *_edges(row, level), *_learning(row, level, margin)]
    if row.start is not None:
        words = f"all seeds start from the first of {row.start}"
        found.append(Unfair("one pretrained network for all seeds", words))
    return tuple(found)


def epochs(row: RowResult, level: str) -> float:
    """Largest number of epochs at a level, in a row's search and its trainings; 0 for accounting only."""
    if not row.trained:
        return 0.0
    trained = [*_trained(row, level)]
    tried = [
        _passes({**settings, **candidate}, examples)  # a candidate has only the values of the grid
        for candidate in _candidates(row.search, level)
        for settings, examples in trained or [({}, 0)]
    ]
    return max([*tried, *(_passes(*each) for each in trained)], default=0.0)


def curves(path: Path | None, level: str) -> pd.DataFrame:
    """Validation accuracies, 0 to 1, at a level: a line per epoch, a column per seed; empty without history.

    Raises:
        UserError: ``path`` has no trainings of a row.
    """
    lines = pd.DataFrame(read_history(path.stem, path.parents[2]) if path else [], columns=HISTORY_COLUMNS)
    lines = lines[(lines["level"] == level) & (lines["metric"] == ACCURACY)]
    return lines.pivot(index="epoch", columns="seed", values="value")


def batches(row: RowResult, level: str) -> set[float]:
    """Batch sizes at a level, in a row's search and its trainings."""
    own = {float(replica.settings.get("batch", 0)) for replica in row.cells[level].replicas}
    return own | {float(each["batch"]) for each in _candidates(row.search, level) if "batch" in each}


def _trained(row: RowResult, level: str) -> Iterator[tuple[dict[str, Any], int]]:
    """Yield settings and number of training examples of each replica at a level; 0 without a record."""
    cell = row.cells.get(level)
    for replica in cell.replicas if cell else ():
        yield replica.settings, row.record.origins[replica.origin].examples if row.record else 0


def _passes(settings: dict[str, Any], examples: int) -> float:
    """Epochs of a training with these settings, by `epochs` or `steps`; 0 if they don't say."""
    if settings.get("epochs") is not None:
        return float(settings["epochs"])
    if settings.get("steps") and settings.get("batch") and examples:
        return float(settings["steps"] * settings["batch"] / examples)
    return 0.0


def _candidates(search: SearchRecord | None, level: str) -> list[dict[str, Any]]:
    """Settings of the candidates that a search tried at a level; [] without a search."""
    return [each.settings for each in search.candidates if each.level == level] if search else []


def _budget(row: RowResult, level: str, others: Sequence[RowResult]) -> Iterator[Unfair]:
    ours = epochs(row, level)
    most = max((epochs(other, level) for other in others), default=0.0)
    if ours < most:
        words = f"at most {number(ours)} epochs, where another line has up to {number(most)}"
        yield Unfair("unequal budget", words)


def _edges(row: RowResult, level: str) -> Iterator[Unfair]:
    tried, chosen = _candidates(row.search, level), row.search.chosen.get(level) if row.search else None
    if chosen is None or not tried:
        yield Unfair("no search at this level", "its settings come from another level or from elsewhere")
        return
    for name, value in chosen.items():
        values = {each[name] for each in tried if isinstance(each.get(name), int | float)}
        if len(values) < 2 or value not in (min(values), max(values)):
            continue
        if not _lost(row, level, name, value, values):
            grid = ", ".join(map(number, sorted(values)))
            yield Unfair("edge of the grid", f"{name.replace('_', ' ')} {number(value)} of {grid}")


def _lost(row: RowResult, level: str, name: str, value: float, values: set[float]) -> bool:
    """Return True if another search of the line tried values of ``name`` beyond ``value`` and chose none."""

    def beyond(other: float) -> bool:
        return other > value if value == max(values) else other < value

    for search in row.other_searches:
        wider = {each[name] for each in _candidates(search, level) if name in each}
        chosen = search.chosen.get(level, {}).get(name)
        if any(map(beyond, wider)) and chosen is not None and not beyond(chosen):
            return True
    return False


def _learning(row: RowResult, level: str, margin: float) -> Iterator[Unfair]:
    curve = curves(row.history, level).mean(axis=1)
    if len(curve) < 2:
        yield Unfair("still learning", "one validation accuracy in its history, which can't show a rise")
        return
    start, end = curve.index[0], curve.index[-1]
    rise = 100 * (curve[end] - float(interp(max(end - TENTH * end, start), curve.index, curve)))
    if isnan(rise):
        yield Unfair("still learning", "a validation accuracy that is no number, which can't show a rise")
    elif AGAIN * rise > margin:
        yield Unfair("still learning", f"{number(rise)} points of validation accuracy in its last tenth")
