"""Figure over all papers: test accuracy against proven epsilon, with results of others."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from ruamel.yaml import YAML

from dprepro.errors import UserError
from dprepro.pipeline.methods.rooms import method_settings
from dprepro.pipeline.params import PAPERS, Settings
from dprepro.pipeline.reporting import papers, vocabulary
from dprepro.pipeline.reporting.drawing.style import COLOURS, INK, svg
from dprepro.pipeline.reporting.facts import PaperResult
from dprepro.pipeline.reporting.judging.guarantees import VACUOUS
from dprepro.pipeline.reporting.wording import anchor, level_words, upwards

NAME = "accuracy-privacy"
LARGEST = 1e3  # largest epsilon on the axis; points with a larger one are drawn at the edge
EXTERNAL_MARKERS = "s^v<>"
SETS = {"mnist": "MNIST", "cifar10": "CIFAR-10"}
HOVER = "{}, {}: {:.2f} % at a proven ε of {}"  # row, level, accuracy, bound
Point = tuple[str, float, float, str]  # method, proven epsilon, accuracy in percent, link with text on hover


# published results of others by data set, at delta 1e-5 and from scratch; points are (epsilon, percent)
ANCHORS = YAML(typ="safe", pure=True).load(
    Path(__file__).with_name("others.yaml").read_text(encoding="utf-8")
)


@dataclass(frozen=True)
class ExternalResult:
    """Mean accuracy of another laboratory at its proven epsilon."""

    label: str  # the paper, and the line of its table
    raw: str  # the raw data set
    epsilon: float
    percent: float


def external_results(settings: Settings, root: Path = Path()) -> list[ExternalResult]:
    """Read results of other laboratories from their summaries, which params.yaml names.

    A result is a level that gives the verdict on a printed value and has a bound on epsilon. Only summaries
    and papers' files are read, so no code of another laboratory is loaded.

    Raises:
        UserError: a summary is missing or invalid.
    """
    return [result for path in settings.summaries for result in _summary_results(root / path)]


def _summary_results(path: Path) -> list[ExternalResult]:
    unbounded = [vocabulary.PRIVACY[state].text for state in ("none", "none_proven")]
    numbers: dict[str, type] = {"proven": float, "ours": float, "decides": bool}
    try:
        lines = pd.read_csv(path, dtype=numbers)
        decided = lines[lines["decides"] & (lines["metric"] == "test_accuracy") & lines["proven"].notna()]
        bounded = decided[~decided["privacy"].isin(unbounded)]
        names = {
            key: papers.short(papers.load(key, path.parents[1] / PAPERS)) for key in decided["paper"].unique()
        }
        return [
            ExternalResult(f"{names[line.paper]}, {line.line}, run here", line.raw, line.proven, line.ours)
            for line in bounded.itertuples()
        ]
    except (OSError, AttributeError, KeyError, ValueError) as problem:
        raise UserError(f"{path}: no summary of a report; run `dprepro report` there") from problem


def draw(results: Sequence[PaperResult], external: Sequence[ExternalResult] = ()) -> str | None:
    """SVG text with a panel per data set; points link to their rows. None without any point."""
    shown = {key: points for key in SETS if (points := _points(results, key))}
    if not shown:
        return None
    methods = sorted({method for points in shown.values() for method, *_ in points})

    def plot(figure: Figure) -> None:
        grid = figure.subplots(1, len(shown), squeeze=False)[0]
        for axes, (key, points) in zip(grid, shown.items(), strict=True):
            _panel(axes, SETS[key], points, methods)
            _plot_external(axes, key, external)
        handles: dict[str, Any] = {}
        for axes in grid:
            handles |= dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
        figure.legend(list(handles.values()), list(handles), loc="outside lower center")

    return svg(NAME, (5.6 * len(shown), 6.6), plot)


def _points(results: Sequence[PaperResult], key: str) -> list[Point]:
    """Points of the levels with a proven bound, for rows on the data set ``key``."""
    return [
        (
            row.record.method,
            epsilon,
            cell.mean.value,
            f"../papers/{paper.key}.html#{anchor(row.key, cell.level)} {words}",
        )
        for paper in results
        for table in paper.tables
        if table.table.metric == "test_accuracy" and table.table.unit == "percent"
        for row in table.rows
        if row.record and row.raw == key and row.comparable
        for cell in row.cells.values()
        if (epsilon := cell.guarantee.ledger.epsilon_upper) is not None
        and cell.guarantee.state not in ("none", "none_proven")
        for words in [HOVER.format(row.key, level_words(cell.level), cell.mean.value, upwards(epsilon))]
    ]


def _plot_external(axes: Axes, key: str, external: Sequence[ExternalResult]) -> None:
    """Plot the results of other laboratories, with a marker for each line of a paper."""
    for number, label in enumerate(dict.fromkeys(result.label for result in external)):
        shown = [result for result in external if result.label == label and result.raw == key]
        if shown:
            points = [(min(result.epsilon, LARGEST), result.percent) for result in shown]
            marker = EXTERNAL_MARKERS[number % len(EXTERNAL_MARKERS)]
            axes.plot(*zip(*points, strict=True), marker, color=INK, ms=5, label=label)


def _panel(axes: Axes, name: str, points: list[Point], methods: Sequence[str]) -> None:
    for number, method in enumerate(methods):
        of_method = [point[1:] for point in points if point[0] == method]
        if of_method:
            epsilons, values, links = zip(*of_method, strict=True)
            at = [min(epsilon, LARGEST) for epsilon in epsilons]
            colour, label = COLOURS[number % len(COLOURS)], method_settings()[method].title
            axes.scatter(at, values, s=25, color=colour, alpha=0.8, label=label, urls=links)
    for known in ANCHORS[name]:
        look: Any = {"ls": ":", "lw": 0.8, "color": COLOURS[5], "mfc": "none", "ms": 8}
        axes.plot(*zip(*known["points"], strict=True), marker=known["marker"], label=known["source"], **look)
    axes.axvspan(VACUOUS, LARGEST * 1.3, color=COLOURS[4], alpha=0.08, lw=0)
    axes.text(VACUOUS * 1.1, 12, "no useful bound", fontsize=8.5)
    axes.set_xscale("log")
    axes.set_xlim(0.1, LARGEST * 1.3)
    axes.set_ylim(0, 101)
    axes.set_xticks([0.1, 1, 10, 100, LARGEST], ["0.1", "1", "10", "100", "≥ 1,000"])
    axes.set_title(name)
    axes.set_xlabel("ε, proven for the mechanism as run")
    axes.set_ylabel("test accuracy (%)")
