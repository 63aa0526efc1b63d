"""Effects: differences of two results that a paper prints, such as of two networks at one epsilon."""

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from math import hypot
from typing import Any

import pandas as pd

from dprepro.pipeline.params.papers import Table
from dprepro.pipeline.reporting import verdict
from dprepro.pipeline.reporting.table import CELL, Columns, Sources
from dprepro.pipeline.reporting.verdict import NORMAL, Mean, SeedValues, contrast
from dprepro.pipeline.results.schema import ACCOUNTING

Cell = tuple[str, str, str, str, str]  # paper, table, line, metric, level


class Results:
    """Lines of the table by cell."""

    def __init__(self, table: pd.DataFrame) -> None:
        """Index the lines of ``table``."""
        self._lines: dict[Cell, list[Columns]] = defaultdict(list)
        for line in table.to_dict("records"):
            self._lines[tuple(line[name] for name in CELL)].append(line)

    def primary(self, cell: Cell) -> Columns | None:
        """The line that decides a cell; None if nothing is declared for it."""
        return next((line for line in self._lines[cell] if line["is_primary"]), None)

    def pair(self, left: Cell, right: Cell) -> tuple[Columns | None, Columns | None]:
        """The two results to compare.

        They are the primary ones. If these were trained for different lengths, rows of the same lines that
        were trained as long as the other line (`Row.trained_as`) replace them.
        """
        one, two = self.primary(left), self.primary(right)
        if one is None or two is None:
            return one, two
        pairs = [
            (each, other)
            for each in self._candidates(left, one, right[2])
            for other in self._candidates(right, two, left[2])
            if not reason_not_run(each, other) and not confounded(each, other, None)
        ]
        return min(pairs, key=lambda pair: (pair[0] is not one) + (pair[1] is not two), default=(one, two))

    def _candidates(self, cell: Cell, primary: Columns, other: str) -> list[Columns]:
        as_long = [line for line in self._lines[cell] if line["trained_as"] in (cell[2], other)]
        return [primary, *as_long]


def measured(line: Columns) -> SeedValues:
    """Values of a line by seed, and their mean."""
    half = None if pd.isna(line["half_width"]) else line["half_width"]
    return SeedValues(line["by_seed"], Mean(line["ours"], half, len(line["by_seed"])))


def difference(left: Columns, right: Columns) -> Mean:
    """Difference of two results, seed by seed if both are of one row."""
    return contrast([(1.0, left["row"], measured(left)), (-1.0, right["row"], measured(right))])


def effects(table: pd.DataFrame, sources: Sources) -> pd.DataFrame:
    """Effects in tables of percentages, one per line; `status` is by `verdict.effect`.

    Each line is compared with the table's first line at every level, with the lines that the paper argues
    about (`argued`), and with itself from one level to the next.
    """
    results = Results(table)
    return pd.DataFrame(
        _effect((paper, key, left, printed.metric, at), (paper, key, right, printed.metric, other), results)
        | {"argued": argued}
        for paper, content in sources.papers.items()
        for key, printed in content.tables.items()
        if not printed.own
        and printed.unit == "percent"
        and key in set(table["table"][table["paper"] == paper])
        for left, at, right, other, argued in _pairs(printed)
    )


def _pairs(table: Table) -> Iterator[tuple[str, str, str, str, bool]]:
    """Yield (left line, its level, right line, its level, argued) of the effects of a table."""
    levels = {
        line.key: [level for level in table.columns if line.number(level) is not None] for line in table.lines
    }
    first, *others = levels or [""]
    argued = dict.fromkeys((pair.left, pair.right) for pair in table.argues)
    for left, right in dict.fromkeys([*((line, first) for line in others), *argued]):
        if (right, left) in argued and (left, right) not in argued:
            continue
        for level in levels[left]:
            if level in levels[right]:
                yield left, level, right, level, (left, right) in argued
    for line, at in levels.items():
        for before, after in pairwise(at):
            yield line, after, line, before, False


def _effect(left: Cell, right: Cell, results: Results) -> dict[str, Any]:
    printed = [results.primary(cell) for cell in (left, right)]
    one, two = results.pair(left, right)
    assert printed[0] is not None
    assert printed[1] is not None
    theirs = printed[0]["paper_value"] - printed[1]["paper_value"]
    columns: dict[str, Any] = {"paper": left[0], "table": left[1]}
    for name, cell, ran in (("left", left, one), ("right", right, two)):
        columns |= {f"{name}_line": cell[2], f"{name}_level": cell[4], f"{name}_row": ran and ran["row"]}
    columns |= {"paper_difference": theirs, "difference": None, "half_width": None}
    if one is None or two is None or (reason := reason_not_run(one, two)):
        return columns | {"status": "not run", "reason": reason}
    ours = difference(one, two)
    noise = hypot(
        *(
            verdict.spread(tuple(ran["by_seed"].values()))
            if pd.isna(side["paper_error"])
            else NORMAL * side["paper_error"]
            for side, ran in zip(printed, (one, two), strict=True)
            if side
        )
    )
    margin = min(printed[0]["margin"], printed[1]["margin"])
    reason = confounded(one, two, ours.value)
    return columns | {
        "difference": ours.value,
        "half_width": ours.half_width,
        "status": "confounded" if reason else verdict.effect(ours, theirs, noise, margin),
        "reason": reason,
    }


def reason_not_run(*lines: Columns) -> str | None:
    """Reason why results say nothing about a difference; None if they may."""
    for line in lines:
        if not isinstance(line["by_seed"], dict):
            return "not run"
        # the noise of a release doesn't depend on the length of the training
        if line["training"] == "shorter" and line["unit"] == "percent":
            return "training too short"
        if isinstance(line["not_judged_reason"], str):
            return str(line["not_judged_reason"])
        trained = line["method"] != ACCOUNTING and line["unit"] == "percent"
        if trained and len(line["by_seed"]) < verdict.FEWEST_SEEDS:
            return f"fewer than {verdict.FEWEST_SEEDS} seeds"
    return None


def confounded(left: Columns, right: Columns, ours: float | None) -> str | None:
    """Handicap that may explain our difference ``ours``, or any difference if it is None; None without one.

    Unequal training is none if the side with less training wins.
    """
    shared = left["shared_start"] or right["shared_start"]
    if shared and left["row"] != right["row"] and left["level"] == right["level"]:
        return "one pretrained network for all seeds"
    if left["examples"] != right["examples"] and left["method"] != ACCOUNTING:
        return "unequal data"
    longer = _longer(left, right)
    if longer and (ours is None or longer * ours > 0):
        return f"up to {left['epochs']:g} and {right['epochs']:g} epochs"
    return None


def _longer(left: Columns, right: Columns) -> float:
    """Positive if the left side had more training, negative if it had less, 0 if it had as much."""
    if "paper silent" not in (left["training"], right["training"]):
        return 0.0
    if (left["epochs"], left["batch"]) == (right["epochs"], right["batch"]):
        return 0.0
    return float(left["epochs"] - right["epochs"])
