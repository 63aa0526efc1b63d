"""How every figure looks, and figures as SVG text.

The same input gives the same bytes: no dates, and ids from a salt of the figure's own, so that several
figures fit into one page without their clip paths and markers getting mixed up.
"""

import re
from collections.abc import Callable
from html import escape
from io import StringIO
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pipeline.reporting.histories import Curve
from pipeline.reporting.results import RowResult

# Stand-ins that `themed` turns into the page's own colours; on their own they read on a white ground.
INK, FAINT = "#1c2430", "#c9d0d9"
# After Okabe and Ito: colour-blind eyes tell most apart, on light and dark.
COLOURS = ("#3b82c4", "#d9822b", "#2a9d78", "#b15fb0", "#c9504d", "#8a8f98")
LEGEND_LINE = 0.21  # inches
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


def thinned(curve: Curve) -> Curve:
    """Every k-th point, and the last."""
    stride = -(-len(curve) // POINTS) or 1
    return [*curve[:-1:stride], *curve[-1:]]


def columns(points: list[tuple[float, float]] | list[tuple[int, float]]) -> tuple[list[float], list[float]]:
    """The x and the y."""
    return [x for x, _ in points], [y for _, y in points]


def down(count: int, across: int) -> int:
    """Rows of panels, of which ``across`` stand beside one another."""
    return -(-count // across)


def remark(row: RowResult, form: str) -> str:
    """Why the row's numbers decide nothing, such as a reduced budget; nothing where they may."""
    words = ", ".join(mark.words for mark in row.marks if mark.inconclusive)
    return form.format(words) if words else ""


def panels(figure: Figure, count: int, across: int, ylabel: str, sharex: bool = True) -> list[Axes]:
    """``count`` panels with one y axis, which is labelled at the left ones; and one x axis if ``sharex``."""
    across = min(across, count)
    grid = figure.subplots(down(count, across), across, squeeze=False, sharex=sharex, sharey=True)
    for axes in grid.flat[count:]:
        axes.set_axis_off()
    for axes in grid[:, 0]:
        axes.set_ylabel(ylabel)
    return list(grid.flat[:count])


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
