"""Histograms of examples' gradient norms at a training's beginning, middle and end, as a figure."""

from collections.abc import Iterator
from math import sqrt

from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from pipeline.reporting.drawing.style import COLOURS, INK, Panels
from pipeline.reporting.histories import Curve, averages
from pipeline.reporting.results import RowResult, TableResult
from pipeline.reporting.wording import level_words, number

SUFFIX = "norms"  # of the figure's file
TITLE = "Histograms of gradient norms in {}"  # for screen readers, of the table
CAPTION = (
    "Norms of the examples' gradients before clipping (means over the augmented copies), at the first, "
    "middle and last note of the history; the outer bins are open; mean over seeds."
)
PREFIX = "gradient_norms/"  # of a history's metrics: gradient_norms/EDGE, a share of the examples
BIN = sqrt(2)  # upper over lower edge of the bins between the first and the last, which are open
NOTES = ("first note", "middle", "last")  # of the history, that are drawn
PANELS = Panels(2, 4.2, 2.6, "share of examples (%)")
Shares = dict[float, Curve]  # lower edge of a bin -> share of the examples in it, over the epochs


def draw(result: TableResult) -> str | None:
    """A panel for each row and level, with the first, middle and last histogram; None without any.

    Raises:
        UserError: a row's history is not one.
    """

    def plot(axes: Axes, panel: tuple[RowResult, str, Shares]) -> None:
        row, level, shares = panel
        clip = row.cells[level].replicas[0].settings["clip"]
        axes.set_title(f"{row.declared.label}, {level_words(level)}\n{row.key}")
        axes.axvline(clip, color=INK, ls=":", lw=1.2)
        axes.set_xlabel("norm of an example's gradient before clipping")
        _plot(axes, shares)

    shown = [(row, level, shares) for row in result.rows for level, shares in _shares(row)]
    legend = {
        note: Line2D([], [], color=colour, lw=1.6) for note, colour in zip(NOTES, COLOURS, strict=False)
    }
    legend["C, where gradients are clipped"] = Line2D([], [], color=INK, ls=":", lw=1.2)
    return PANELS.svg(f"{result.name}-{SUFFIX}", shown, plot, legend)


def _shares(row: RowResult) -> Iterator[tuple[str, Shares]]:
    """(level, histograms) of the levels that have some."""
    history = averages(row.history) if row.cells else {}
    for level in row.cells:
        bins = {
            float(metric.removeprefix(PREFIX)): by_level[level]
            for metric, by_level in history.items()
            if metric.startswith(PREFIX) and level in by_level
        }
        if bins:
            yield level, dict(sorted(bins.items()))


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
