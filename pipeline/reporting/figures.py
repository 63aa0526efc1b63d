"""Figures as SVG text: accuracy by level beside the paper's, and training curves.

The same input gives the same bytes: no dates, and ids from a salt of the figure's own, so that several
figures fit into one page without their clip paths and markers getting mixed up.
"""

import csv
import re
from collections import defaultdict
from collections.abc import Callable
from html import escape
from io import StringIO
from pathlib import Path
from statistics import fmean
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pipeline import records
from pipeline.errors import UserError
from pipeline.reporting.results import RowResult, TableResult
from pipeline.reporting.wording import level_value

# Stand-ins that `themed` turns into the page's own colours; on their own they read on a white ground.
INK, FAINT = "#1c2430", "#c9d0d9"
# One colour a line of the paper, after Okabe and Ito: colour-blind eyes tell most apart, on light and dark.
COLOURS = ("#3b82c4", "#d9822b", "#2a9d78", "#b15fb0", "#c9504d", "#8a8f98")
# and one marker and dash a row of that line
MARKERS, DASHES = "osD^vP", ("-", "-.", ":")
# The first that a history has is drawn.
CURVES = ("validation_accuracy", "train_accuracy", "train_loss")
SPENT = "epsilon_spent"
LEGEND_COLUMN = 60  # letters that fit into half the figure's width
POINTS = 200  # drawn of a curve; a screen shows no more

_STYLE: Any = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 10,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": FAINT,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": FAINT,
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 9,
}
# step -> values of one level's seeds, by epoch
Curve = list[tuple[float, float]]


def levels(result: TableResult) -> str | None:
    """The table as a plot: paper hollow and dashed, ours filled with intervals; None without any number."""
    if not any(row.cells for row in result.rows) and not any(line.line for line in result.lines):
        return None

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        for index, line in enumerate(result.lines):
            colour = COLOURS[index % len(COLOURS)]
            if line.line is not None:
                points = [
                    (x, printed.value)
                    for x, level in enumerate(result.levels)
                    if (printed := line.line.values.get(level)) and printed.value is not None
                ]
                axes.plot(
                    *_columns(points),
                    "--o",
                    color=colour,
                    mfc="none",
                    lw=1,
                    ms=5,
                    label=f"{line.label}, paper",
                )
            for number, row in enumerate(line.rows):
                style = DASHES[number % len(DASHES)] + MARKERS[number % len(MARKERS)]
                _plot_row(axes, row, result.levels, colour, style)
        axes.set_xticks(range(len(result.levels)), [level_value(level) for level in result.levels])
        axes.set_xlabel(result.table.axis)
        axes.set_ylabel(
            result.table.metric.replace("_", " ") + (" (%)" if result.table.unit == "percent" else "")
        )
        handles, labels = axes.get_legend_handles_labels()
        narrow = max(map(len, labels)) <= LEGEND_COLUMN
        figure.legend(handles, labels, loc="outside lower center", ncols=2 if narrow else 1)
        if result.table.unit == "percent":
            # an interval may leave the scale, an accuracy can't
            low, high = axes.get_ylim()
            axes.set_ylim(max(0, low), min(100.5, high))

    return _svg(result.name, (8.4, 4.9), draw)


def _plot_row(axes: Axes, row: RowResult, columns: tuple[str, ...], colour: str, style: str) -> None:
    cells = [(x, row.cells[level]) for x, level in enumerate(columns) if level in row.cells]
    if not cells:
        return
    axes.errorbar(
        [x for x, _ in cells],
        [cell.mean.value for _, cell in cells],
        yerr=[cell.mean.half or 0.0 for _, cell in cells],
        fmt=style,
        color=colour,
        lw=1.6,
        ms=5,
        capsize=3,
        # what is no reproduction must not look like one
        alpha=1.0 if row.comparable else 0.45,
        label=f"{row.row.label}, ours" + ("" if row.comparable else " (not comparable)"),
    )


def curves(result: TableResult, root: Path = Path()) -> str | None:
    """Training curves, a column a row, with the epsilon spent below; None where no row has a history."""
    found = [(row, history) for row in result.rows if row.record and (history := read_history(row.key, root))]
    if not found:
        return None
    drawn = [metric for metric in (_drawn([history for _, history in found]), SPENT) if metric]
    drawn = [metric for metric in drawn if any(metric in history for _, history in found)]
    colours = matplotlib.colormaps["viridis"]

    def draw(figure: Figure) -> None:
        grid = figure.subplots(len(drawn), len(found), squeeze=False, sharex="col", sharey="row")
        for column, (row, history) in enumerate(found):
            grid[0][column].set_title(row.key)
            grid[-1][column].set_xlabel("epoch")
            for line, metric in enumerate(drawn):
                for index, level in enumerate(result.levels):
                    curve = history.get(metric, {}).get(level, [])
                    # the last tenth of viridis is too light for paper
                    colour = colours(0.9 * index / max(1, len(result.levels) - 1))
                    grid[line][column].plot(
                        *_columns(_thin(curve)), color=colour, lw=1.3, label=level_value(level)
                    )
        for line, metric in enumerate(drawn):
            grid[line][0].set_ylabel("ε spent" if metric == SPENT else metric.replace("_", " "))
            if metric == SPENT:
                grid[line][0].set_yscale("log")
                grid[line][0].yaxis.set_major_formatter("{x:g}")
                grid[line][0].yaxis.set_minor_formatter("{x:g}")
        handles, labels = grid[0][0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), title=result.table.axis)

    return _svg(f"{result.name}-curves", (max(8.4, 2.8 * len(found)), 1.2 + 2.3 * len(drawn)), draw)


def _drawn(histories: list[dict[str, dict[str, Curve]]]) -> str | None:
    return next((metric for metric in CURVES if any(metric in history for history in histories)), None)


def read_history(row: str, root: Path = Path()) -> dict[str, dict[str, Curve]]:
    """Metric -> level -> (epoch, mean over seeds), in order of epochs; empty where there is no history.

    Raises:
        UserError: the file is not a history.
    """
    path = records.history_path(row, root)
    if not path.exists():
        return {}
    values: dict[tuple[str, str, float], list[float]] = defaultdict(list)
    with path.open(newline="", encoding="utf-8") as file:
        try:
            for line in csv.DictReader(file):
                values[line["metric"], line["level"], float(line["epoch"])].append(float(line["value"]))
        except (KeyError, ValueError, TypeError) as problem:
            raise UserError(
                f"{path}: not a history; columns are {', '.join(records.HISTORY_COLUMNS)}"
            ) from problem
    found: dict[str, dict[str, Curve]] = defaultdict(lambda: defaultdict(list))
    for metric, level, epoch in sorted(values):
        found[metric][level].append((epoch, fmean(values[metric, level, epoch])))
    return found


def _thin(curve: Curve) -> Curve:
    """Every k-th point, and the last."""
    stride = -(-len(curve) // POINTS) or 1
    return [*curve[:-1:stride], *curve[-1:]]


def _columns(points: list[tuple[float, float]] | list[tuple[int, float]]) -> tuple[list[float], list[float]]:
    return [x for x, _ in points], [y for _, y in points]


def _svg(name: str, inches: tuple[float, float], draw: Callable[[Figure], None]) -> str:
    with matplotlib.rc_context({**_STYLE, "svg.hashsalt": name}):
        figure = Figure(figsize=inches, layout="constrained")
        draw(figure)
        text = StringIO()
        figure.savefig(text, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    return text.getvalue()


def themed(svg: str, title: str) -> str:
    """The figure for inlining: the page's colours and fonts, a name for screen readers, no ids to clash."""
    svg = svg[svg.index("<svg") :]
    name = f'role="img" aria-label="{escape(title)}"'
    svg = re.sub(
        r'<svg [^>]*?viewBox="([^"]+)"[^>]*>', lambda found: f'<svg viewBox="{found[1]}" {name}>', svg
    )
    # groups' ids repeat from figure to figure and nothing refers to them
    svg = re.sub(r'<g id="[^"]*"', "<g", svg)
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    return svg.replace(INK, "var(--ink)").replace(FAINT, "var(--line)")
