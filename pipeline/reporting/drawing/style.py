"""Style of the figures, and figures as SVG text without dates."""

import re
from collections.abc import Callable
from html import escape
from io import StringIO
from typing import Any

import matplotlib
from matplotlib.artist import Artist
from matplotlib.figure import Figure
from matplotlib.text import Text

# Stand-ins that `themed` turns into the page's own colours; on their own they read on a white ground.
INK, FAINT = "#1c2430", "#c9d0d9"
# After Okabe and Ito: colour-blind eyes tell most apart, on light and dark.
COLOURS = ("#3b82c4", "#d9822b", "#2a9d78", "#b15fb0", "#c9504d", "#8a8f98")
LEGEND_LINE = 0.21  # inches
INCH = 72  # points
ROOM = 4  # points around a panel

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
# a link, a blank, and what it says on hover
_LINK = re.compile(r'<a xlink:href="(\S+) ([^"]*)" target="_blank">')


def columns(points: list[tuple[float, float]] | list[tuple[int, float]]) -> tuple[list[float], list[float]]:
    """The x and the y."""
    return [x for x, _ in points], [y for _, y in points]


def svg(name: str, inches: tuple[float, float], draw: Callable[[Figure], None]) -> str:
    """SVG text of a figure of that size, filled by ``draw``; ids begin with a digest of ``name``."""
    with matplotlib.rc_context({**_STYLE, "svg.hashsalt": name}):
        figure = Figure(figsize=inches, layout="constrained", dpi=INCH)
        draw(figure)
        # what people call their rows is no formula; numbers beside axes, which may be, are not there yet
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
    """The figure for inlining: a picture a panel, which a page lays beside or below one another.

    They have the page's colours and fonts and a name for screen readers, and no ids to clash with others'.
    """
    panels = [(box, inside) for _, box, inside in _PANEL.findall(svg)]
    whole = re.search(r'<svg [^>]*?viewBox="([^"]+)"[^>]*>(.*)</svg>', svg, re.DOTALL)
    assert whole is not None
    # what panels are clipped by follows after them
    rest = svg[svg.rindex("<defs>") : svg.rindex("</svg>")] if panels and "<clipPath" in svg else ""
    pictures = "".join(
        f'<svg viewBox="{box}" style="width:{box.split()[2]}pt">{inside}</svg>'
        for box, inside in panels or [(whole[1], whole[2])]
    )
    text = f'<div class="panels" role="group" aria-label="{escape(title)}">{pictures}'
    text += f'<svg class="clips" width="0" height="0">{rest}</svg></div>' if rest else "</div>"
    # ids of groups repeat from figure to figure and nothing refers to them
    text = re.sub(r'<g id="[^"]*"', "<g", text)
    text = text.replace("font-family: 'DejaVu Sans', sans-serif; ", "")
    return text.replace(INK, "var(--ink)").replace(FAINT, "var(--line)")
