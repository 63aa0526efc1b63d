"""Style of the figures, and their SVG text."""

import re
from collections.abc import Callable
from io import StringIO
from typing import Any

import matplotlib
from matplotlib.figure import Figure
from matplotlib.text import Text

INK, FAINT = "#1c2430", "#8a8f9855"
# After Okabe and Ito: colour-blind readers can distinguish most, on light and dark backgrounds.
COLOURS = ("#3b82c4", "#d9822b", "#2a9d78", "#b15fb0", "#c9504d", "#8a8f98")
INCH = 72  # in points

_STYLE: Any = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
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
# a link, a space, and its text on hover
_LINK = re.compile(r'<a xlink:href="(\S+) ([^"]*)" target="_blank">')


def svg(name: str, inches: tuple[float, float], draw: Callable[[Figure], None]) -> str:
    """SVG text, without a date, of a figure that ``draw`` fills; ``name`` is the salt of its ids."""
    with matplotlib.rc_context({**_STYLE, "svg.hashsalt": name}):
        figure = Figure(figsize=inches, layout="constrained", dpi=INCH)
        draw(figure)
        # names of rows are no formulas; numbers at axes, which may be formulas, do not exist yet
        for text in figure.findobj(lambda artist: isinstance(artist, Text) and "$" in artist.get_text()):
            text.set(parse_math=False)
        written = StringIO()
        figure.savefig(written, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
        drawn = re.sub(r"\s*<metadata>.*?</metadata>", "", written.getvalue(), flags=re.DOTALL)
    # the page's colour in a page, black in a file of its own
    drawn = drawn.replace(INK, "currentColor")
    return _LINK.sub(r'<a xlink:href="\1"><title>\2</title>', drawn)
