"""Style of the figures, and their SVG text."""

import re
from collections.abc import Callable
from html import escape
from io import StringIO
from typing import Any

import matplotlib
from matplotlib.artist import Artist
from matplotlib.figure import Figure
from matplotlib.text import Text

# `themed` replaces these colours by the page's. In a file of its own, a figure needs a white background.
INK, FAINT = "#1c2430", "#c9d0d9"
# After Okabe and Ito: colour-blind readers can distinguish most, on light and dark backgrounds.
COLOURS = ("#3b82c4", "#d9822b", "#2a9d78", "#b15fb0", "#c9504d", "#8a8f98")
LEGEND_LINE = 0.21  # height of a line of the legend, in inches
INCH = 72  # in points
ROOM = 4  # around a panel, in points

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
_PANEL = re.compile(r'^( *)<g id="panel-\d+" data-box="([^"]*)">\n(.*?)^\1</g>', re.MULTILINE | re.DOTALL)
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
        panels: list[Artist] = [*figure.axes, *figure.legends]
        for number, panel in enumerate(panels):
            panel.set_gid(f"panel-{number}")
        written = StringIO()
        figure.savefig(written, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
        drawn = written.getvalue()
        for number, panel in enumerate(panels):
            box, gid = panel.get_tightbbox(), f'id="panel-{number}"'
            assert box is not None
            corner = box.x0 - ROOM, figure.bbox.height - box.y1 - ROOM
            sides = (*corner, box.width + 2 * ROOM, box.height + 2 * ROOM)
            drawn = drawn.replace(gid, f'{gid} data-box="{" ".join(str(round(side)) for side in sides)}"')
    return _LINK.sub(r'<a xlink:href="\1"><title>\2</title>', drawn)


def themed(svg: str, title: str) -> str:
    """HTML of a figure for a page, with one picture per panel; ``title`` is its name for screen readers.

    The pictures have the page's colours and fonts, and no ids that could clash with those of other figures.
    """
    panels = [(box, inside) for _, box, inside in _PANEL.findall(svg)]
    whole = re.search(r'<svg [^>]*?viewBox="([^"]+)"[^>]*>(.*)</svg>', svg, re.DOTALL)
    assert whole is not None
    # the clip paths of panels follow after the panels
    rest = svg[svg.rindex("<defs>") : svg.rindex("</svg>")] if panels and "<clipPath" in svg else ""
    pictures = "".join(
        f'<svg viewBox="{box}" style="width:{box.split()[2]}pt">{inside}</svg>'
        for box, inside in panels or [(whole[1], whole[2])]
    )
    text = f'<div class="panels" role="group" aria-label="{escape(title)}">{pictures}'
    text += f'<svg class="clips" width="0" height="0">{rest}</svg></div>' if rest else "</div>"
    # ids of groups repeat from figure to figure, and nothing refers to them
    text = re.sub(r'<g id="[^"]*"', "<g", text)
    text = text.replace("font-family: 'DejaVu Sans', sans-serif; ", "")
    return text.replace(INK, "var(--ink)").replace(FAINT, "var(--line)")
