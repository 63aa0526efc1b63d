"""Forest plot of judged values and contrasts: ours less the paper's, in margins, with 95 % intervals.

`pages/forest.svg` draws the panels, each of one fixed width. A page lays them beside or below one another, so
that type stays legible on a phone and on a wide screen. Colours are the page's tones; shape, filling and
dashes say the same without colour.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from pipeline.reporting import wording
from pipeline.reporting.facts import PaperResult
from pipeline.reporting.judging import values
from pipeline.reporting.judging.contrasts import PrintedContrast
from pipeline.reporting.papers import short
from pipeline.reporting.results import RowResult, Strength, TableResult, Value
from pipeline.reporting.vocabulary import CONTRASTS, VALUES

NAME = "forest"
LEFT, RIGHT = 152, 392  # of a panel's plot, in pixels
REACH = 3.0  # margins to either side; points further out are arrows at the edge
DASHED = ("inconclusive", "undecided", "same sign")  # statuses with a dashed interval
SHAPES: dict[Strength, str] = {
    "the paper's settings": "M-3.6 0A3.6 3.6 0 1 0 3.6 0A3.6 3.6 0 1 0 -3.6 0Z",
    "a budget of our own": "M-3.2 -3.2H3.2V3.2H-3.2Z",
    "accounting": "M0 -4.4L4.4 0L0 4.4L-4.4 0Z",
}


@dataclass(frozen=True)
class Point:
    """Judged number in a panel; places in pixels."""

    x: float
    low: float  # end of the interval, within the panel
    high: float
    shape: str  # path
    classes: str
    row: str  # key, to which it links
    paper: str
    title: str  # on hover


Group = tuple[str, tuple[Point, ...]]  # name and points of a line


@dataclass(frozen=True)
class Panel:
    """Values or contrasts of a paper: groups of points by table."""

    title: str
    tables: tuple[tuple[str, tuple[Group, ...]], ...]


def panels(papers: Sequence[PaperResult]) -> list[Panel]:
    """Panels of each paper's judged contrasts and judged values; papers without any are left out."""
    found = []
    for paper in papers:
        shown = {table.table.name: table for table in paper.tables if not table.table.own}
        differences = {
            name: [
                point
                for contrast in paper.contrasts
                if contrast.result.name == table.name
                for point in _contrast(contrast)
            ]
            for name, table in shown.items()
        }
        numbers = {name: list(_values(paper, table)) for name, table in shown.items()}
        for title, by_table in (("contrasts", differences), ("printed values", numbers)):
            tables = tuple((name, _groups(points)) for name, points in by_table.items() if points)
            found += [Panel(f"{short(paper.paper)}: {title}", tables)] if tables else []
    return found


def _groups(points: Iterable[tuple[str, Point]]) -> tuple[Group, ...]:
    grouped = groupby(points, key=lambda named: named[0])
    return tuple((name, tuple(point for _, point in alike)) for name, alike in grouped)


def x(margins: float) -> float:
    """Place of a difference, in pixels."""
    return LEFT + (RIGHT - LEFT) * (margins + REACH) / (2 * REACH)


def _point(
    difference: float, half: float, margin: float, tone: str, status: str, planned: bool, row: RowResult,
    paper: str, title: str,
) -> Point:  # fmt: skip
    """Point of ours less the paper's, with half its interval and the margin in one unit."""
    away, half = difference / (margin or 1.0), half / (margin or 1.0)
    shape, at = SHAPES[row.strength], away
    if abs(away) > REACH:
        side = 1 if away > 0 else -1
        shape, at = f"M{-5 * side} -4L{2 * side} 0L{-5 * side} 4Z", REACH * side
    classes = f"{tone}{' dashed' if status in DASHED else ''}{'' if planned else ' hollow'}"
    low, high = x(max(-REACH, away - half)), x(min(REACH, away + half))
    return Point(x(at), low, high, shape, classes, row.key, paper, title)


def _values(paper: PaperResult, table: TableResult) -> Iterator[tuple[str, Point]]:
    for line in table.lines:
        for metric, by_level in line.values.items():
            group = line.label + (f", {table.table.also[metric]}" if metric else "")
            for value in (value for level, value in by_level.items() if level in table.levels):
                if value.row is not None and value.away is not None and value.status in values.JUDGED:
                    yield group, _value(paper, table, group, value, value.row, value.away)


def _value(
    paper: PaperResult, table: TableResult, group: str, value: Value, row: RowResult, away: float
) -> Point:
    decimals = table.table.decimals
    n = len(row.cells[value.level].values) if value.level in row.cells else 0
    half = f" ± {wording.fixed(value.half, decimals)}" if value.half else ""
    title = (
        f"{group} at {wording.level_words(value.level)}: {value.words}; ours minus the paper's "
        f"{wording.signed(away, decimals)}{half}, margin {wording.number(value.margin)}; {row.key}, n = {n}, "
        f"{row.strength}, {value.evidence}"
    )
    planned, tone = value.planned or row.strength == "accounting", VALUES[value.status].tone
    return _point(away, value.half, value.margin, tone, value.status, planned, row, paper.key, title)


def _contrast(contrast: PrintedContrast) -> Iterator[tuple[str, Point]]:
    left, right, decimals = contrast.left, contrast.right, contrast.result.table.decimals
    if contrast.ours is None or left.row is None or right.row is None:
        return
    at = wording.level_words(left.level)
    if contrast.of_lines:
        group, where = f"{left.line.label} − {right.line.label}", at
    else:
        group, where = f"{left.line.label}, columns", f"{at} − {wording.level_words(right.level)}"
    ours, theirs = (wording.signed(number, decimals) for number in (contrast.ours.value, contrast.theirs))
    title = (
        f"{group} at {where}: {CONTRASTS[contrast.status].text}; ours {ours}, the paper's {theirs}, "
        f"± {wording.fixed(contrast.half, decimals)}, margin {wording.number(contrast.margin)}; "
        f"{left.row.key} and {right.row.key}, n = {contrast.ours.n}, {left.row.strength}, "
        f"{'planned' if contrast.planned else 'exploratory'}"
        f"{', argued by the paper' if contrast.argued else ''}"
    )
    difference, tone = contrast.ours.value - contrast.theirs, CONTRASTS[contrast.status].tone
    yield group, _point(
        difference, contrast.half, contrast.margin, tone, contrast.status, contrast.planned, left.row,
        contrast.result.paper, title,
    )  # fmt: skip
