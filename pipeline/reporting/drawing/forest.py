"""Forest plot of judged values and contrasts: ours less the paper's, in margins, with 95 % intervals.

Panels of one fixed width are laid beside or below one another, so that type stays legible on a phone and on a
wide screen. Colours are the page's tones; shape, filling and dashes say the same without colour.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby
from pathlib import Path

from pipeline.reporting import wording
from pipeline.reporting.judging import values
from pipeline.reporting.judging.contrasts import PrintedContrast
from pipeline.reporting.papers import PaperResult, short
from pipeline.reporting.results import RowResult, Strength, TableResult, Value
from pipeline.reporting.vocabulary import CONTRASTS, VALUES

NAME = "forest"
WIDTH, LEFT, RIGHT = 400, 152, 392  # of a panel and of its plot, in pixels
REACH = 3.0  # margins to either side; what lies further out is an arrow at the edge
LINE, HEAD, FOOT = 9.0, 20.0, 30.0  # heights of a point, of a panel's heading and of its axis
SMALLEST = 14.0  # height of a group, which has a line of type
LETTERS = 25  # of a group's label
DASHED = ("inconclusive", "undecided", "same sign")  # not decided, so that the interval is dashed
SHAPES: dict[Strength, str] = {
    "the paper's settings": "M-3.6 0A3.6 3.6 0 1 0 3.6 0A3.6 3.6 0 1 0 -3.6 0Z",
    "a budget of our own": "M-3.2 -3.2H3.2V3.2H-3.2Z",
    "accounting": "M0 -4.4L4.4 0L0 4.4L-4.4 0Z",
}
STYLE = Path(__file__).with_name("forest.css").read_text(encoding="utf-8")
# colours of a file by itself; inside a page the page's own hold
THEME = """:root { --card: #ffffff; --ink: #1c2430; --line: #dde1e6; --soft: #566170; --good: #17694a;
  --bad: #a8231b; --warn: #7a5000; --plain: #1f5f9e; }
@media (prefers-color-scheme: dark) { :root { --card: #191f26; --ink: #e5e9ee; --line: #2e3741;
  --soft: #9ba7b4; --good: #74d6a8; --bad: #ffa49c; --warn: #f0c465; --plain: #8cc0f0; } }
"""


@dataclass(frozen=True)
class Point:
    """A judged number as a panel shows it."""

    group: str
    away: float  # ours less the paper's, in margins
    half: float  # half the 95 % interval, in margins
    tone: str
    dashed: bool  # no decision
    strength: Strength
    planned: bool
    row: str  # key, to which it links
    paper: str
    says: str  # on hover


@dataclass(frozen=True)
class Panel:
    """The points of a paper's values or contrasts, by the names of its tables."""

    title: str
    tables: tuple[tuple[str, tuple[Point, ...]], ...]


def panels(papers: Sequence[PaperResult], contrasts: Sequence[PrintedContrast]) -> list[Panel]:
    """Judged contrasts of each paper, then its judged values; papers without any are left out."""
    found = []
    for paper in papers:
        tables = [table for table in paper.tables if not table.table.own]
        of_paper = [each for each in contrasts if each.result.paper == paper.key]
        name, shown = short(paper.paper), {table.table.name: table for table in tables}
        differences = {
            number: [
                point for each in of_paper if each.result.name == table.name for point in _contrast(each)
            ]
            for number, table in shown.items()
        }
        numbers = {number: list(_values(paper, table)) for number, table in shown.items()}
        for title, by_table in ((f"{name}: contrasts", differences), (f"{name}: printed values", numbers)):
            parts = tuple((number, tuple(points)) for number, points in by_table.items() if points)
            found += [Panel(title, parts)] if parts else []
    return found


def inline(shown: Sequence[Panel], up: str = "") -> str:
    """Panels for a page at ``up`` from the folder of pages, each a picture, and what the signs mean."""
    pictures = "".join(_picture(panel.title, *_drawn(panel, up)) for panel in shown)
    key, height = _key()
    return f'<div class="panels forest">{pictures}{_picture("What the signs mean", key, height)}</div>'


def standalone(shown: Sequence[Panel]) -> str | None:
    """All panels below one another as a file by itself, in the theme of whoever looks; None without any."""
    if not shown:
        return None
    parts, y = [], 0.0
    for inside, height in (*(_drawn(panel, "../") for panel in shown), _key()):
        parts.append(f'<g transform="translate(0 {y:g})">{inside}</g>')
        y += height + 8
    ground = f'<rect class="ground" width="{WIDTH}" height="{y:g}"/>'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" class="forest" '
        f'width="{WIDTH}" height="{y:g}" viewBox="0 0 {WIDTH} {y:g}" role="img" '
        f'aria-label="Ours less the paper\'s, in margins"><style>{THEME}{STYLE}</style>{ground}'
        f"{''.join(parts)}</svg>\n"
    )


def _picture(title: str, inside: str, height: float) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {height:g}" style="width:{WIDTH}px" role="img" '
        f'aria-label="{escape(title)}">{inside}</svg>'
    )


def _values(paper: PaperResult, table: TableResult) -> Iterator[Point]:
    for line in table.lines:
        for metric, by_level in line.values.items():
            group = line.label + (f", {table.table.also[metric]}" if metric else "")
            for value in (value for level, value in by_level.items() if level in table.levels):
                if value.row is not None and value.away is not None and value.status in values.JUDGED:
                    yield _value(paper, table, group, value, value.row, value.away)


def _value(
    paper: PaperResult, table: TableResult, group: str, value: Value, row: RowResult, away: float
) -> Point:
    decimals = table.table.decimals
    n = len(row.cells[value.level].values) if value.level in row.cells else 0
    half = f" ± {wording.fixed(value.half, decimals)}" if value.half else ""
    says = (
        f"{group} at {wording.level_words(value.level)}: {value.words}; ours less the paper's "
        f"{wording.signed(away, decimals)}{half}, margin {wording.number(value.margin)}; {row.key}, n = {n}, "
        f"{row.strength}, {value.evidence}"
    )
    margin = value.margin or 1.0
    return Point(
        group,
        away / margin,
        value.half / margin,
        VALUES[value.status].tone,
        value.status in DASHED,
        row.strength,
        value.planned or row.strength == "accounting",
        row.key,
        paper.key,
        says,
    )


def _contrast(each: PrintedContrast) -> Iterator[Point]:
    if each.ours is None or each.left.row is None or each.right.row is None:
        return
    decimals, row = each.result.table.decimals, each.left.row
    at = wording.level_words(each.left.level)
    if each.of_lines:
        group, where = f"{each.left.line.label} − {each.right.line.label}", at
    else:
        group, where = f"{each.left.line.label}, columns", f"{at} − {wording.level_words(each.right.level)}"
    ours, theirs = (wording.signed(number, decimals) for number in (each.ours.value, each.theirs))
    says = (
        f"{group} at {where}: {CONTRASTS[each.status].text}; ours {ours}, the paper's {theirs}, "
        f"± {wording.fixed(each.half, decimals)}, margin {wording.number(each.margin)}; "
        f"{row.key} and {each.right.row.key}, n = {each.ours.n}, {row.strength}, "
        f"{'planned' if each.planned else 'exploratory'}{', argued by the paper' if each.argued else ''}"
    )
    margin = each.margin or 1.0
    yield Point(
        group,
        (each.ours.value - each.theirs) / margin,
        each.half / margin,
        CONTRASTS[each.status].tone,
        each.status in DASHED,
        row.strength,
        each.planned,
        row.key,
        each.result.paper,
        says,
    )


def _drawn(panel: Panel, up: str) -> tuple[str, float]:
    """A panel's elements and its height."""
    parts, y = [f'<text class="head" x="0" y="13">{escape(panel.title)}</text>'], HEAD
    low, high = _x(-1), _x(1)
    for table, points in panel.tables:
        parts.append(f'<text class="soft" x="0" y="{y + 11:g}">{escape(table)}</text>')
        y += SMALLEST
        groups = [(name, list(alike)) for name, alike in groupby(points, key=lambda point: point.group)]
        bottom = y + sum(max(SMALLEST, LINE * len(alike)) for _, alike in groups)
        parts.append(
            f'<rect class="band" x="{low:g}" y="{y:g}" width="{high - low:g}" height="{bottom - y:g}"/>'
            f'<line class="zero" x1="{_x(0):g}" x2="{_x(0):g}" y1="{y:g}" y2="{bottom:g}"/>'
        )
        for name, alike in groups:
            height = max(SMALLEST, LINE * len(alike))
            parts.append(
                f'<line class="group" x1="0" x2="{RIGHT}" y1="{y:g}" y2="{y:g}"/><text x="0" y="{y + 11:g}">'
                f"{escape(_cut(name))}<title>{escape(name)}</title></text>"
            )
            for number, point in enumerate(alike):
                parts.append(_point(point, y + height * (number + 0.5) / len(alike), up))
            y += height
        y += 4
    for at, words in ((-2, "−2"), (-1, "−1"), (0, "0"), (1, "1"), (2, "2")):
        parts.append(f'<text class="soft" x="{_x(at):g}" y="{y + 12:g}" text-anchor="middle">{words}</text>')
    parts.append(
        f'<text class="soft" x="{_x(0):g}" y="{y + 25:g}" text-anchor="middle">'
        "ours less the paper's, in margins</text>"
    )
    return "".join(parts), y + FOOT


def _point(point: Point, y: float, up: str) -> str:
    low, high = max(-REACH, point.away - point.half), min(REACH, point.away + point.half)
    kinds = f"point {point.tone}{' dashed' if point.dashed else ''}{'' if point.planned else ' hollow'}"
    if abs(point.away) > REACH:
        side = 1 if point.away > 0 else -1
        mark, at = f"M{-5 * side} -4L{2 * side} 0L{-5 * side} 4Z", _x(REACH * side)
    else:
        mark, at = SHAPES[point.strength], _x(point.away)
    whisker = (
        f'<line x1="{_x(low):.1f}" x2="{_x(high):.1f}" y1="{y:.1f}" y2="{y:.1f}"/>' if low < high else ""
    )
    return (
        f'<a href="{_link(point, up)}"><title>{escape(point.says)}</title><g class="{kinds}">{whisker}'
        f'<path transform="translate({at:.1f} {y:.1f})" d="{mark}"/></g></a>'
    )


def _link(point: Point, up: str) -> str:
    return f"{up}papers/{point.paper}.html#row-{point.row}"


def _key() -> tuple[str, float]:
    """What shapes, fillings, dashes and colours mean."""
    shapes: Iterable[tuple[str, str, str]] = (
        ("plain", SHAPES["the paper's settings"], "at the paper's settings"),
        ("plain", SHAPES["a budget of our own"], "at a budget of our own"),
        ("plain", SHAPES["accounting"], "by accounting, nothing trained"),
        ("plain hollow", SHAPES["a budget of our own"], "exploratory; filled: planned"),
        ("good", SHAPES["a budget of our own"], "green: agrees, or has the paper's sign"),
        ("warn dashed", SHAPES["a budget of our own"], "brown, dashed: undecided; dashed green: same sign"),
        ("bad", SHAPES["a budget of our own"], "red: below, opposite, or differs"),
        ("plain", SHAPES["a budget of our own"], "blue: above, or larger or smaller than the paper's"),
    )
    parts, y = ['<text class="head" x="0" y="13">What the signs mean</text>'], HEAD + 8
    for kinds, mark, words in shapes:
        line = f'<line x1="4" x2="28" y1="{y:g}" y2="{y:g}"/>'
        path = f'<path transform="translate(16 {y:g})" d="{mark}"/>'
        parts.append(f'<g class="point {kinds}">{line}{path}</g><text x="36" y="{y + 4:g}">{words}</text>')
        y += 17
    signs = "Grey band: the margin. Whiskers: 95 %. Arrows: further out."
    parts.append(f'<text class="soft" x="0" y="{y + 4:g}">{signs}</text>')
    return "".join(parts), y + 12


def _x(margins: float) -> float:
    return LEFT + (RIGHT - LEFT) * (margins + REACH) / (2 * REACH)


def _cut(label: str) -> str:
    return label if len(label) <= LETTERS else label[: LETTERS - 1].rstrip() + "…"
