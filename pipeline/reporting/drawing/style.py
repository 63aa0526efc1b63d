"""How every figure looks, and figures as SVG text.

The same input gives the same bytes: no dates, and ids from a salt of the figure's own, so that several
figures fit into one page without their clip paths and markers getting mixed up.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from io import StringIO
from typing import Any, TypeVar

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from pipeline.reporting.histories import Curve
from pipeline.reporting.results import RowResult

# Stand-ins that `themed` turns into the page's own colours; on their own they read on a white ground.
INK, FAINT = "#1c2430", "#c9d0d9"
# After Okabe and Ito: colour-blind eyes tell most apart, on light and dark.
COLOURS = ("#3b82c4", "#d9822b", "#2a9d78", "#b15fb0", "#c9504d", "#8a8f98")
LEGEND_LINE = 0.21  # inches
POINTS = 200  # drawn of a curve; a screen shows no more

T = TypeVar("T")

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


def thinned(curve: Curve) -> Curve:
    """Every k-th point, and the last."""
    stride = -(-len(curve) // POINTS) or 1
    return [*curve[:-1:stride], *curve[-1:]]


def columns(points: list[tuple[float, float]] | list[tuple[int, float]]) -> tuple[list[float], list[float]]:
    """The x and the y."""
    return [x for x, _ in points], [y for _, y in points]


def remark(row: RowResult, form: str) -> str:
    """Why the row's numbers decide nothing, such as a reduced budget; nothing where they may."""
    words = ", ".join(mark.words for mark in row.marks if mark.inconclusive)
    return form.format(words) if words else ""


@dataclass(frozen=True)
class Panels:
    """A figure of panels with one y axis, which is labelled at the left ones; sizes are in inches."""

    across: int  # beside one another, at most
    width: float  # of one
    height: float
    ylabel: str = ""
    sharex: bool = True  # one x axis too

    def svg(
        self,
        name: str,
        shown: Sequence[T],
        plot: Callable[[Axes, T], None],
        legend: Mapping[str, Line2D] | None = None,
        columns: int | None = None,
        below: float = 0.0,
    ) -> str | None:
        """A panel for each of ``shown``, drawn by ``plot``, and ``below`` for a legend; None of nothing."""
        if not shown:
            return None
        across = min(self.across, len(shown))
        down = -(-len(shown) // across)

        def draw(figure: Figure) -> None:
            grid = figure.subplots(down, across, squeeze=False, sharex=self.sharex, sharey=True)
            for axes in grid.flat[len(shown) :]:
                axes.set_axis_off()
            for axes in grid[:, 0]:
                axes.set_ylabel(self.ylabel)
            for axes, item in zip(grid.flat, shown, strict=False):
                plot(axes, item)
            if legend:
                place: Any = {"loc": "outside lower center", "ncols": columns or len(legend)}
                figure.legend(legend.values(), legend.keys(), **place)

        return svg(name, (max(8.4, self.width * across), self.height * down + below), draw)


def svg(name: str, inches: tuple[float, float], draw: Callable[[Figure], None]) -> str:
    """What ``draw`` puts on a figure of that size, as SVG text; ``name`` salts its ids."""
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
    # ids of groups and images repeat from figure to figure and nothing refers to them
    svg = re.sub(r'<g id="[^"]*"', "<g", svg)
    svg = re.sub(r' id="image[^"]*"', "", svg)
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    return svg.replace(INK, "var(--ink)").replace(FAINT, "var(--line)")
