"""Pictures: test accuracy against proven epsilon over all papers, with results of others; curves of a row."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from io import StringIO
from pathlib import Path
from typing import Any

import matplotlib
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text
from ruamel.yaml import YAML

from dprepro.errors import UserError
from dprepro.pipeline.ledgers.sentences import number, upwards
from dprepro.pipeline.methods.settings import method_settings
from dprepro.pipeline.params import PAPERS, Settings, papers
from dprepro.pipeline.reporting.privacy import worst
from dprepro.pipeline.reporting.wording import level_words
from dprepro.pipeline.results import records
from dprepro.pipeline.results.schema import Ledger, Record

NAME = "accuracy-privacy"
METRIC = "test_accuracy"
LARGEST = 1e3  # largest epsilon on the axis; points with a larger one are drawn at the edge
EXTERNAL_MARKERS = "s^v<>"
SETS = {"mnist": "MNIST", "cifar10": "CIFAR-10"}

INK, FAINT = "#1c2430", "#8a8f9855"
# After Okabe and Ito: colour-blind readers can distinguish most, on light and dark backgrounds.
COLOURS = ("#3b82c4", "#d9822b", "#2a9d78", "#b15fb0", "#c9504d", "#8a8f98")
INCH = 72  # in points
POINTS = 200  # drawn of a curve, enough for a screen
WIDTH, HEIGHT, LEFT, BELOW, LEGEND = 480, 220, 40, 34, 110
Curve = Sequence[tuple[float, float]]

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


@dataclass(frozen=True)
class ExternalResult:
    """Mean accuracy of another laboratory at its proven epsilon."""

    label: str  # the paper
    dataset: str  # the raw data set
    epsilon: float
    percent: float


def external_results(settings: Settings, root: Path = Path()) -> list[ExternalResult]:
    """Read results of other laboratories from their summaries, which params.yaml names.

    A result is a level that decides a printed value and has a bound on epsilon. Only summaries and papers'
    files are read, so no code of another laboratory is loaded.

    Raises:
        UserError: a summary is missing or invalid.
    """
    return [result for path in settings.summaries for result in _summary_results(root / path)]


def _summary_results(path: Path) -> list[ExternalResult]:
    try:
        lines = pd.read_csv(path)
        shown = lines[lines["is_primary"] & (lines["metric"] == METRIC) & _bounded(lines)]
        names = {
            key: papers.short(papers.load(key, path.parents[1] / PAPERS)) for key in shown["paper"].unique()
        }
        return [
            ExternalResult(f"{names[line.paper]}, run here", line.dataset, line.epsilon_upper, line.ours)
            for line in shown.itertuples()
        ]
    except (OSError, AttributeError, KeyError, ValueError) as problem:
        raise UserError(f"{path}: no summary of a report; run `dprepro report` there") from problem


def _bounded(lines: pd.DataFrame) -> pd.Series:
    """Whether an upper bound on epsilon holds."""
    seeded = lines["privacy_reason"].astype(str).str.contains("seeded")
    return lines["epsilon_upper"].notna() & (lines["privacy"] != "no claim") & ~seeded


def draw(table: pd.DataFrame, external: Sequence[ExternalResult] = ()) -> str | None:
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
            _plot_external(axes, key, external)
        handles: dict[str, Any] = {}
        for axes in grid:
            handles |= dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
        grid[0].set_xlabel("proven ε")
        grid[0].set_ylabel("test accuracy (%)")
        figure.legend(list(handles.values()), list(handles), loc="outside right center")

    return _svg((4.2 * len(shown) + 2.6, 3.0), plot)


def _plot_external(axes: Axes, key: str, external: Sequence[ExternalResult]) -> None:
    """Plot the results of other laboratories, with a marker for each paper."""
    for place, label in enumerate(dict.fromkeys(result.label for result in external)):
        shown = [result for result in external if result.label == label and result.dataset == key]
        if shown:
            points = [(min(result.epsilon, LARGEST), result.percent) for result in shown]
            marker = EXTERNAL_MARKERS[place % len(EXTERNAL_MARKERS)]
            axes.plot(*zip(*points, strict=True), marker, color=INK, ms=5, label=label)


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


def row_pictures(record: Record, root: Path) -> list[tuple[str, str]]:
    """(caption, SVG) of a row's validation accuracy by epoch and proven trade-off curves.

    Those without data are left out. It is plain SVG: matplotlib takes a third of a second for each, and there
    are hundreds.
    """
    return [*_training(record, root), *_tradeoff(record)]


def _training(record: Record, root: Path) -> Iterator[tuple[str, str]]:
    lines = pd.DataFrame(records.read_history(record.row, root), columns=records.HISTORY_COLUMNS)
    accuracies = lines[lines["metric"] == records.ACCURACY].groupby(["level", "epoch"], sort=False)
    means = accuracies["value"].mean() * 100
    curves = {
        str(level): [(float(epoch), float(value)) for (_, epoch), value in curve.items()]
        for level, curve in means.groupby("level", sort=False)
    }
    if any(len(curve) > 1 for curve in curves.values()):
        yield "Validation accuracy (%) by epoch, mean over seeds", _picture(curves, "epoch", (0.0, 100.0))


def _tradeoff(record: Record) -> Iterator[tuple[str, str]]:
    by_level: dict[str, list[Ledger]] = {training.level: [] for training in record.trainings}
    for training in record.trainings:
        by_level[training.level].append(training.ledger)
    proven = {level: worst(ledgers) for level, ledgers in by_level.items()}
    curves = {
        level: ledger.tradeoff for level, ledger in proven.items() if ledger.tradeoff and not ledger.reasons
    }
    if curves:
        caption = "Least type II error of any attacker, by type I error: proven lower bounds"
        yield caption, _picture(curves, "type I error", (0.0, 1.0))


def _picture(curves: Mapping[str, Curve], axis: str, height: tuple[float, float]) -> str:
    """SVG of curves by level, with a legend; ``height`` is the range of the vertical axis."""
    high = max(x for curve in curves.values() for x, _ in curve) or 1.0
    parts = []
    last = float(int(high)) or high
    for tick in range(5):
        y = HEIGHT * tick / 4
        text = number(height[1] - (height[1] - height[0]) * tick / 4)
        parts.append(f'<path class="rule" d="M{LEFT} {y:.0f}h{WIDTH}"/>')
        parts.append(f'<text x="{LEFT - 5}" y="{y + 4:.0f}" text-anchor="end">{text}</text>')
        x = LEFT + WIDTH * last / high * tick / 4
        text = number(last * tick / 4)
        parts.append(f'<text x="{x:.0f}" y="{HEIGHT + 15}" text-anchor="middle">{text}</text>')
    middle = LEFT + WIDTH / 2
    parts.append(f'<text x="{middle:.0f}" y="{HEIGHT + 30}" text-anchor="middle">{escape(axis)}</text>')
    for place, (level, curve) in enumerate(curves.items()):
        colour = COLOURS[place % len(COLOURS)]
        drawn = [*curve[: -1 : -(-len(curve) // POINTS)], curve[-1]]
        points = " ".join(
            f"{LEFT + WIDTH * x / high:.1f},{HEIGHT * (height[1] - y) / (height[1] - height[0]):.1f}"
            for x, y in drawn
        )
        parts.append(f'<polyline fill="none" stroke="{colour}" stroke-width="1.6" points="{points}"/>')
        y = 12 + 15 * place
        words = escape(level_words(level))
        parts.append(f'<text x="{LEFT + WIDTH + 10}" y="{y}" style="fill:{colour}">{words}</text>')
    size = f"0 -6 {LEFT + WIDTH + LEGEND} {max(HEIGHT + BELOW, 15 * len(curves)) + 10}"
    return f'<svg class="plot" viewBox="{size}" width="{LEFT + WIDTH + LEGEND}">{"".join(parts)}</svg>'
