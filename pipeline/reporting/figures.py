"""Figures as SVG text: accuracy by level beside the paper's, and training curves.

The same input gives the same bytes: no dates, and ids from a salt of the figure's own, so that several
figures fit into one page without their clip paths and markers getting mixed up.
"""

import re
from collections.abc import Callable
from html import escape
from io import StringIO
from math import nan
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pipeline import records
from pipeline.reporting import histories
from pipeline.reporting.histories import Curve, averaged
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
PLOT_HEIGHT, LEGEND_LINE = 4.0, 0.21  # inches
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


def levels(result: TableResult) -> str | None:
    """The table as a plot: paper hollow and dashed, ours filled with intervals; None without any number."""
    ours = any(cell.converged for row in result.rows for cell in row.cells.values())
    theirs = any(value.value is not None for line in result.table.lines for value in line.values.values())
    if not ours and not theirs:
        return None

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        for index, line in enumerate(result.lines):
            colour = COLOURS[index % len(COLOURS)]
            points = [
                (x, printed.value)
                for x, level in enumerate(result.levels)
                if line.line and (printed := line.line.values.get(level)) and printed.value is not None
            ]
            if points:
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
        legend = 2 if max(map(len, labels)) <= LEGEND_COLUMN else 1
        figure.legend(handles, labels, loc="outside lower center", ncols=legend)
        figure.set_figheight(PLOT_HEIGHT + LEGEND_LINE * -(-len(labels) // legend))
        if result.table.unit == "percent":
            # an interval may leave the scale, an accuracy can't
            low, high = axes.get_ylim()
            axes.set_ylim(max(0, low), min(100.5, high))

    return _svg(result.name, (8.4, PLOT_HEIGHT), draw)


def _plot_row(axes: Axes, row: RowResult, columns: tuple[str, ...], colour: str, style: str) -> None:
    cells = [(x, row.cells[level]) for x, level in enumerate(columns) if level in row.cells]
    if not any(cell.converged for _, cell in cells):
        return
    axes.errorbar(
        [x for x, _ in cells],
        # training that failed leaves a gap, as the paper's 'No-convergence' does
        [cell.mean.value if cell.converged else nan for _, cell in cells],
        yerr=[cell.mean.half or 0.0 for _, cell in cells],
        fmt=style,
        color=colour,
        lw=1.6,
        ms=5,
        capsize=3,
        # what is no reproduction must not look like one
        alpha=1.0 if row.comparable else 0.45,
        label=f"{row.row.label}, ours" + _remark(row, " ({})"),
    )


def _remark(row: RowResult, form: str) -> str:
    """Why the row's numbers decide nothing, such as a reduced budget; nothing where they may."""
    words = ", ".join(mark.words for mark in row.marks if mark.inconclusive)
    return form.format(words) if words else ""


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
            grid[0][column].set_title(row.key + _remark(row, "\n({})"))
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
    return {
        metric: {level: averaged(curves) for level, curves in by_level.items()}
        for metric, by_level in histories.read(path).items()
    }


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
