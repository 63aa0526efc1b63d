"""Contrasts: differences of a table's lines and columns, judged at equal training budgets.

Every line is compared with the table's baseline at each column, and with itself from one column to the next.
The paper's file names further pairs of lines (`Table.argues`). Two rows with equal training budgets decide a
contrast. They are the rows that decide the printed values, or rows that were trained at the other line's
budget (`Row.budget_of`).
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from math import hypot, sqrt
from typing import Literal

from dprepro.pipeline.reporting.judging.fairness import unfair
from dprepro.pipeline.reporting.judging.intervals import NORMAL, Mean, contrast
from dprepro.pipeline.reporting.judging.pairs import paired_rows, why_not
from dprepro.pipeline.reporting.judging.rule import place, run_spread
from dprepro.pipeline.reporting.printed import Line
from dprepro.pipeline.reporting.results import Cell, LineResult, RowResult, TableResult

Status = Literal[
    "agrees",
    "larger",
    "smaller",
    "opposite",
    "same sign",
    "differs",
    "undecided",
    "not judged",
    "waits for a GPU",
    "not run",
]


@dataclass(frozen=True)
class Side:
    """One side of a contrast: a line at a level, and the compared row."""

    line: Line
    level: str
    row: RowResult | None

    @property
    def printed(self) -> float:
        """The number that the paper prints."""
        number = self.line.number(self.level)
        assert number is not None
        return number

    @property
    def error(self) -> float | None:
        """Printed standard error, if any."""
        return self.line.values[self.level].error


@dataclass(frozen=True)
class PrintedContrast:
    """Difference of two printed numbers, with its verdict."""

    result: TableResult
    left: Side
    right: Side
    argued: bool  # whether the paper discusses it
    status: Status = "not run"
    why: str = ""  # why it is not judged
    ours: Mean | None = None
    half: float = 0.0  # half the 95 % interval of our difference minus the paper's
    margin: float = 0.0
    planned: bool = False  # whether all seeds of both sides are planned
    fewer_data: bool = False  # whether both sides have the same small part of the paper's data
    unfair: bool = False  # whether a side fails a condition of fairness; it decides nothing

    @property
    def of_lines(self) -> bool:
        """Return True for two lines at one level, False for one line at two levels."""
        return self.left.level == self.right.level

    @property
    def theirs(self) -> float:
        """The paper's difference."""
        return self.left.printed - self.right.printed


def table_contrasts(result: TableResult) -> Iterator[PrintedContrast]:
    """Yield contrasts of lines with the baseline, of pairs that the paper discusses, and of adjacent columns.

    Tables of our own experiments, and tables of numbers other than percentages, have no contrasts.
    """
    table = result.table
    if table.own or table.unit != "percent":
        return
    lines = {line.line.key: line for line in result.lines if line.line is not None}
    prints = {
        line.key: [level for level in table.columns if line.number(level) is not None] for line in table.lines
    }
    argued = dict.fromkeys((pair.left, pair.right) for pair in table.argues)
    first = table.baseline or next(iter(lines), "")
    for left, right in dict.fromkeys([*((key, first) for key in lines if key != first), *argued]):
        if (right, left) in argued and (left, right) not in argued:
            continue
        for level in prints[left]:
            if level in prints[right]:
                yield _judged(result, lines[left], level, lines[right], level, (left, right) in argued)
    for key, line in lines.items():
        for before, after in pairwise(prints[key]):
            yield _judged(result, line, after, line, before, table.argues_levels)


def _judged(
    result: TableResult, left: LineResult, at: str, right: LineResult, other: str, argued: bool
) -> PrintedContrast:
    one, two = paired_rows(left, at, right, other)
    assert left.line is not None
    assert right.line is not None
    contrast = PrintedContrast(result, Side(left.line, at, one), Side(right.line, other, two), argued)
    if one is None or two is None or at not in one.cells or other not in two.cells:
        waits = any(row is not None and row.waits for row in (one, two))
        return replace(contrast, status="waits for a GPU") if waits else contrast
    if why := why_not(one, two, at, other):
        return replace(contrast, status="not judged", why=why)
    return _compared(contrast, (one.cells[at], two.cells[other]), (one, two))


def _compared(
    made: PrintedContrast, cells: tuple[Cell, Cell], rows: tuple[RowResult, RowResult]
) -> PrintedContrast:
    """Give the contrast ``made`` its verdict, by our two cells and their rows."""
    table, sides = made.result.table, (made.left, made.right)
    ours = contrast([(1.0, rows[0].key, cells[0]), (-1.0, rows[1].key, cells[1])])
    if ours.half is None:
        return replace(made, status="not judged", why="no seeds in common")
    theirs = NORMAL * hypot(*(side.error or 0.0 for side in sides))
    share = sum(cell.mean.value for cell in cells) / 200
    test = NORMAL * 100 * sqrt(max(0.0, share * (1 - share)) / table.tested) if table.tested else 0.0
    half = hypot(ours.half, test)
    margin = min(table.judged_margin(side.level, side.line.values[side.level]) for side in sides)
    # numbers that differ by one unit of their last digit have a sign, but 90 and 90.3 have none
    rounded = sum(side.line.values[side.level].rounding(table.decimals) for side in sides)
    sign = 0 if abs(made.theirs) <= max(theirs, 0.999 * rounded) else 1 if made.theirs > 0 else -1
    spread = hypot(*(run_spread(cell.values, side.error) for cell, side in zip(cells, sides, strict=True)))
    return replace(
        made,
        status=_status(ours.value, made.theirs, half, hypot(half, theirs), margin, sign, spread),
        ours=ours,
        half=hypot(half, theirs),
        margin=margin,
        planned=all(cell.planned for cell in cells),
        fewer_data=any(caveat.fewer_data for row in rows for caveat in row.caveats),
        unfair=any(unfair(row, side.level, (), margin) for row, side in zip(rows, sides, strict=True)),
    )


def _status(
    ours: float, theirs: float, half: float, whole: float, margin: float, sign: int, spread: float
) -> Status:
    """Status of a contrast.

    Args:
        ours: difference of our means.
        theirs: difference of the printed numbers.
        half: half the 95 % interval of ``ours``.
        whole: half the 95 % interval of ``ours`` minus ``theirs``.
        margin: margin of ``ours`` minus ``theirs``.
        sign: sign of ``theirs``; 0 if ``theirs`` lies within the paper's own error or rounding.
        spread: half the 95 % interval of ``theirs`` around its mean, by `run_spread` of both sides.
    """
    size = place(ours - theirs, whole, margin, spread)
    surely_same = bool(sign) and sign * ours - half > 0
    if sign and sign * ours + half < 0 and abs(theirs) > spread:
        return "opposite"
    if size == "agrees" and (not sign or surely_same):
        return "agrees"
    if size in ("above", "below"):
        return "differs" if not sign else "larger" if sign * (ours - theirs) > 0 else "smaller"
    return "same sign" if surely_same else "undecided"
