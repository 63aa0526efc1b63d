"""A row's training curves, and beside them the epsilon spent along them."""

from math import ceil
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from pipeline.reporting.drawing.style import LEGEND_LINE, columns, remark, svg, thinned
from pipeline.reporting.histories import Curve, averaged, averages, spending
from pipeline.reporting.results import RowResult, TableResult
from pipeline.reporting.wording import columns_words, level_value
from pipeline.results.schema import Record

# The first that a history has is drawn.
CURVES = ("validation_accuracy", "train_accuracy", "train_loss")
SPENT = "epsilon_spent"
ACROSS = 8  # levels in a line of the legend
WIDTH, HEIGHT = 4.6, 2.9  # inches, of a panel
ByLevel = dict[str, Curve]


def draw(row: RowResult, result: TableResult) -> str | None:
    """A line a level, the mean over seeds; None of a row that has no history.

    Raises:
        UserError: the row's history is not one.
    """
    history = averages(row.history) if row.record else {}
    if row.record is None or not history:
        return None
    accuracy = next((metric for metric in CURVES if metric in history), None)
    panels = {metric: history[metric] for metric in (accuracy,) if metric}
    if spent := _spent(row.record):
        panels[SPENT] = spent
    levels = [level for level in result.levels if any(level in curves for curves in panels.values())]

    def plot(figure: Figure) -> None:
        grid = figure.subplots(1, len(panels), squeeze=False)[0]
        for axes, (metric, curves) in zip(grid, panels.items(), strict=True):
            _plot(axes, curves, levels)
            axes.set_xlabel("epoch")
            axes.set_ylabel("ε spent" if metric == SPENT else metric.replace("_", " "))
            if metric == SPENT:
                axes.set_yscale("log")
                axes.yaxis.set_major_formatter("{x:g}")
                low, high = axes.get_ylim()
                axes.yaxis.set_minor_formatter("{x:g}" if high < 10 * low else NullFormatter())
        # in the file alone: a page names the row itself
        figure.suptitle(row.key + remark(row, "\n({})"), fontsize="medium")
        handles, labels = grid[0].get_legend_handles_labels()
        place: Any = {"loc": "outside lower center", "title": columns_words(result)}
        figure.legend(handles, labels, ncols=min(ACROSS, len(labels)), **place)

    below = LEGEND_LINE * (1 + ceil(len(levels) / ACROSS))
    return svg(f"{row.key}-curves", (WIDTH * len(panels), HEIGHT + below), plot) if levels else None


def _plot(axes: Axes, curves: ByLevel, levels: list[str]) -> None:
    colours = matplotlib.colormaps["viridis"]
    for index, level in enumerate(levels):
        curve = curves.get(level, [])
        # the last tenth of viridis is too light for paper
        colour = colours(0.9 * index / max(1, len(levels) - 1))
        # a training of one note has no line
        mark = "o" if len(curve) == 1 else None
        axes.plot(*columns(thinned(curve)), color=colour, lw=1.3, marker=mark, label=level_value(level))


def _spent(record: Record) -> ByLevel:
    return {level: averaged(curves) for level, curves in spending(record).items()}
