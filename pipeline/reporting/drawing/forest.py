"""Forest plot with 95 % intervals: our values and contrasts minus the paper's, divided by the margins.

`pages/forest.svg` draws the panels, which have a fixed width. A page places them side by side or below one
another, so text stays legible on a phone and on a wide screen. Colours are the page's tones; shapes, fillings
and dashes make the plot readable without colour.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dprepro.pipeline.reporting.facts import PaperResult
from dprepro.pipeline.reporting.results import RowResult, Strength
from dprepro.pipeline.reporting.vocabulary import CONTRASTS, VALUES, Word
from dprepro.pipeline.reporting.wording import anchor, fixed, level_words, number, signed

NAME = "forest"
LEFT, RIGHT = 152, 392  # edges of a panel's plot, in pixels
REACH = 3.0  # largest distance from zero, in margins; points further out are arrows at the edge
DASHED = ("inconclusive", "undecided", "same sign")  # statuses with a dashed interval
SHAPES: dict[Strength, str] = {
    "the paper's settings": "M-3.6 0A3.6 3.6 0 1 0 3.6 0A3.6 3.6 0 1 0 -3.6 0Z",
    "a budget of our own": "M-3.2 -3.2H3.2V3.2H-3.2Z",
    "accounting": "M0 -4.4L4.4 0L0 4.4L-4.4 0Z",
}


@dataclass(frozen=True)
class Point:
    """Judged value or contrast in a panel; coordinates in pixels."""

    x: float
    low: float  # ends of the interval, cut off at the panel's edges
    high: float
    shape: str  # path in SVG
    classes: str
    entry: str  # id of the level's entry, the target of the link
    paper: str
    title: str  # text on hover


Placed = tuple[str, str, Point]  # name of the table, name of the line, point


@dataclass(frozen=True)
class Panel:
    """Values or contrasts of a paper; points by table, then by line."""

    title: str
    tables: dict[str, dict[str, list[Point]]]


def panels(papers: Sequence[PaperResult]) -> list[Panel]:
    """Panels of each paper's judged contrasts and judged values; a paper without them has no panel."""
    found = []
    for paper in papers:
        for title, points in (("contrasts", _contrasts(paper)), ("printed values", _values(paper))):
            tables: dict[str, dict[str, list[Point]]] = {}
            for table, line, point in points:
                tables.setdefault(table, {}).setdefault(line, []).append(point)
            found += [Panel(f"{paper.name}: {title}", tables)] if tables else []
    return found


def x(margins: float) -> float:
    """Horizontal coordinate, in pixels, of a difference in units of its margin."""
    return LEFT + (RIGHT - LEFT) * (margins + REACH) / (2 * REACH)


def _point(
    row: RowResult,
    level: str,
    difference: float,
    half: float,
    margin: float,
    word: Word,
    planned: bool,
    title: str,
) -> Point:
    """Point of ours minus the paper's: ``difference``, ``half`` its interval and ``margin`` in one unit."""
    away, half = difference / (margin or 1.0), half / (margin or 1.0)
    shape, at = SHAPES[row.strength], away
    if abs(away) > REACH:
        side = 1 if away > 0 else -1
        shape, at = f"M{-5 * side} -4L{2 * side} 0L{-5 * side} 4Z", REACH * side
    classes = f"{word.tone}{' dashed' if word.text in DASHED else ''}{'' if planned else ' hollow'}"
    low, high = x(max(-REACH, away - half)), x(min(REACH, away + half))
    return Point(x(at), low, high, shape, classes, anchor(row.key, level), row.declared.paper, title)


def _values(paper: PaperResult) -> Iterator[Placed]:
    for result in (table for table in paper.tables if not table.table.own):
        table, decimals = result.table, result.table.decimals
        for line in result.lines:
            for metric, by_level in line.values.items():
                group = line.label + (f", {table.also[metric]}" if metric else "")
                for level, value in by_level.items():
                    row = value.row
                    if level not in result.levels or row is None or value.away is None or not value.judged:
                        continue
                    half = f" ± {fixed(value.half, decimals)}" if value.half else ""
                    title = (
                        f"{group} at {level_words(level)}: {value.words}; ours minus the paper's "
                        f"{signed(value.away, decimals)}{half}, margin {number(value.margin)}; {row.key}, "
                        f"n = {len(row.cells[level].values)}, {row.strength}, {value.evidence}"
                    )
                    word, planned = VALUES[value.status], value.planned or row.strength == "accounting"
                    point = _point(row, level, value.away, value.half, value.margin, word, planned, title)
                    yield table.name, group, point


def _contrasts(paper: PaperResult) -> Iterator[Placed]:
    for contrast in paper.contrasts:
        left, right, decimals = contrast.left, contrast.right, contrast.result.table.decimals
        if contrast.ours is None or left.row is None or right.row is None:
            continue
        at, word, ours = level_words(left.level), CONTRASTS[contrast.status], contrast.ours
        if contrast.of_lines:
            group, where = f"{left.line.label} − {right.line.label}", at
        else:
            group, where = f"{left.line.label}, columns", f"{at} − {level_words(right.level)}"
        title = (
            f"{group} at {where}: {word.text}; ours {signed(ours.value, decimals)}, the paper's "
            f"{signed(contrast.theirs, decimals)}, ± {fixed(contrast.half, decimals)}, margin "
            f"{number(contrast.margin)}; {left.row.key} and {right.row.key}, n = {ours.n}, "
            f"{left.row.strength}, {'planned' if contrast.planned else 'exploratory'}"
            f"{', discussed in the paper' if contrast.argued else ''}"
        )
        away = ours.value - contrast.theirs
        point = _point(
            left.row, left.level, away, contrast.half, contrast.margin, word, contrast.planned, title
        )
        yield contrast.result.table.name, group, point
