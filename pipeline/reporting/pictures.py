"""Picture: test accuracy against proven epsilon over all papers, with published results of others."""

import re
from collections.abc import Callable, Sequence
from io import StringIO
from pathlib import Path
from typing import Any

import matplotlib
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text
from ruamel.yaml import YAML

from dprepro.pipeline.ledgers.sentences import upwards
from dprepro.pipeline.methods.settings import method_settings
from dprepro.pipeline.reporting.wording import level_words

NAME = "accuracy-privacy"
METRIC = "test_accuracy"
LARGEST = 1e3  # largest epsilon on the axis; points with a larger one are drawn at the edge
SETS = {"mnist": "MNIST", "cifar10": "CIFAR-10"}

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

# published results of others by data set, at delta 1e-5 and from scratch; points are (epsilon, percent)
ANCHORS = YAML(typ="safe", pure=True).load(
    Path(__file__).with_name("others.yaml").read_text(encoding="utf-8")
)


def _bounded(lines: pd.DataFrame) -> pd.Series:
    """Whether an upper bound on epsilon holds."""
    seeded = lines["privacy_reason"].astype(str).str.contains("seeded")
    return lines["epsilon_upper"].notna() & (lines["privacy"] != "no claim") & ~seeded


def draw(table: pd.DataFrame) -> str | None:
    """SVG text with a panel per data set; points link to their rows. None without any point.

    Points are rows that decide a printed value, and rows of tables without one.
    """
    table = table[table["is_primary"] & (table["status"] != "not run")]
    lines = table[(table["metric"] == METRIC) & (table["unit"] == "percent") & table["ours"].notna()]
    lines = lines[_bounded(lines)]
    shown = {key: lines[lines["dataset"] == key] for key in SETS if (lines["dataset"] == key).any()}
    if not shown:
        return None

    def plot(figure: Figure) -> None:
        grid = figure.subplots(1, len(shown), squeeze=False, sharey=True)[0]
        for axes, (key, points) in zip(grid, shown.items(), strict=True):
            _panel(axes, SETS[key], points, sorted(lines["method"].unique()))
        handles: dict[str, Any] = {}
        for axes in grid:
            handles |= dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
        grid[0].set_xlabel("proven ε")
        grid[0].set_ylabel("test accuracy (%)")
        figure.legend(list(handles.values()), list(handles), loc="outside right center")

    return _svg((4.2 * len(shown) + 2.6, 3.0), plot)


def _panel(axes: Axes, name: str, points: pd.DataFrame, methods: Sequence[str]) -> None:
    for place, method in enumerate(methods):
        of_method = points[points["method"] == method]
        if len(of_method):
            colour, label = COLOURS[place % len(COLOURS)], method_settings()[method].title.partition(" (")[0]
            links = [
                f"../rows/{line.row}.html {line.row}, {level_words(line.level)}: {line.ours:.2f} % at a "
                f"proven ε of {upwards(line.epsilon_upper)}"
                for line in of_method.itertuples()
            ]
            at = of_method["epsilon_upper"].clip(upper=LARGEST)
            axes.scatter(at, of_method["ours"], s=22, color=colour, alpha=0.8, label=label, urls=links)
    for known in ANCHORS[name]:
        look: Any = {"ls": ":", "lw": 0.8, "color": COLOURS[5], "mfc": "none", "ms": 8}
        axes.plot(*zip(*known["points"], strict=True), marker=known["marker"], label=known["source"], **look)
    axes.set_xscale("log")
    axes.set_xlim(0.1, LARGEST * 1.3)
    axes.set_ylim(0, 101)
    axes.set_xticks([0.1, 1, 10, 100, LARGEST], ["0.1", "1", "10", "100", "≥ 1,000"])
    axes.set_title(name)


def _svg(inches: tuple[float, float], draw: Callable[[Figure], None]) -> str:
    """SVG text, without a date, of a figure that ``draw`` fills."""
    with matplotlib.rc_context({**_STYLE, "svg.hashsalt": NAME}):
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
