"""Histograms of examples' gradient norms at a training's beginning, middle and end, as a figure."""

from collections.abc import Iterator
from math import sqrt
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from pipeline.reporting.drawing.levels import read_history
from pipeline.reporting.drawing.style import COLOURS, INK, down, panels, svg
from pipeline.reporting.histories import Curve
from pipeline.reporting.results import RowResult, TableResult
from pipeline.reporting.wording import level_words, number

PREFIX = "gradient_norms/"  # of a history's metrics: gradient_norms/EDGE, a share of the examples
BIN = sqrt(2)  # upper over lower edge of the bins between the first and the last, which are open
NOTES = ("first note", "middle", "last")  # of the history, that are drawn
ACROSS, WIDTH, HEIGHT = 2, 4.2, 2.6  # panels beside one another; inches of one
Shares = dict[float, Curve]  # lower edge of a bin -> share of the examples in it, over the epochs


def norms(result: TableResult, root: Path = Path()) -> str | None:
    """A panel for each row and level, with the first, middle and last histogram; None without any.

    Raises:
        UserError: a row's history is not one.
    """
    if "norms" not in result.table.figures:
        return None
    found = [(row, level, shares) for row in result.rows for level, shares in _shares(row, root)]
    if not found:
        return None

    def draw(figure: Figure) -> None:
        grid = panels(figure, len(found), ACROSS, "share of examples (%)")
        for axes, (row, level, shares) in zip(grid, found, strict=True):
            clip = row.cells[level].replicas[0].settings["clip"]
            axes.set_title(f"{row.declared.label}, {level_words(level)}\n{row.key}")
            axes.axvline(clip, color=INK, ls=":", lw=1.2)
            axes.set_xlabel("norm of an example's gradient before clipping")
            _plot(axes, shares)
        handles = [Line2D([], [], color=colour, lw=1.6) for colour in COLOURS[: len(NOTES)]]
        handles.append(Line2D([], [], color=INK, ls=":", lw=1.2))
        words = [*NOTES, "C, where gradients are clipped"]
        figure.legend(handles, words, loc="outside lower center", ncols=len(words))

    across = min(ACROSS, len(found))
    size = (max(8.4, WIDTH * across), HEIGHT * down(len(found), across) + 0.8)
    return svg(f"{result.name}-norms", size, draw)


def _shares(row: RowResult, root: Path) -> Iterator[tuple[str, Shares]]:
    """(level, histograms) of the levels that have some."""
    history = read_history(row.key, root) if row.cells else {}
    for level in row.cells:
        found = {
            float(metric.removeprefix(PREFIX)): by_level[level]
            for metric, by_level in history.items()
            if metric.startswith(PREFIX) and level in by_level
        }
        if found:
            yield level, dict(sorted(found.items()))


def _plot(axes: Axes, shares: Shares) -> None:
    lower = list(shares)
    # the first bin begins at zero, where no logarithmic axis does, and the last has no end
    edges = [lower[1] / BIN, *lower[1:], lower[-1] * BIN]
    times = sorted({epoch for curve in shares.values() for epoch, _ in curve})
    for when, colour in zip((times[0], times[len(times) // 2], times[-1]), COLOURS, strict=False):
        heights = [100 * dict(curve).get(when, 0.0) for curve in shares.values()]
        axes.stairs(heights, edges, color=colour, lw=1.6)
    axes.set_xscale("log", base=2)
    axes.set_xticks(edges[1::4], [number(edge) for edge in edges[1::4]])
    axes.minorticks_off()
