"""Plot of a table: printed numbers and our deciding numbers, by level."""

from collections.abc import Iterable
from math import isfinite, nan
from textwrap import fill

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dprepro.pipeline.reporting.drawing.style import COLOURS, LEGEND_LINE, svg
from dprepro.pipeline.reporting.results import LineResult, TableResult
from dprepro.pipeline.reporting.wording import column_heads, columns_words, level_value, measured_words

MARKERS = "osD^vP"  # a colour and a marker for each line of the paper
FURTHER = ("--", ":", "-.")  # line styles of further metrics
LETTERS = 62  # characters per line of the legend
WIDTH, HEIGHT = 5.6, 4.0  # inches of a panel
SPREAD = 10.0  # an axis is logarithmic if its largest number is more than this times its smallest
CROWDED, WIDE = 90.0, 15.0  # accuracies above CROWDED get a second panel if all span more than WIDE


def draw(result: TableResult) -> str | None:
    """SVG of a table's plot: printed numbers hollow and dashed, ours filled; None without any number."""
    theirs = [line.number(level) for line in result.table.lines for level in result.levels]
    ours = [cell.mean.value for line in result.lines for cell in line.cells if cell.converged]
    numbers = [value for value in (*theirs, *ours) if value is not None and isfinite(value)]
    if not numbers:
        return None
    percent = result.table.unit == "percent"
    crowded = [value for value in numbers if value > CROWDED]
    zoomed = percent and len(crowded) > len(numbers) / 3 and max(numbers) - min(numbers) > WIDE
    places, logarithmic = _places(result.levels)

    def plot(figure: Figure) -> None:
        panels = figure.subplots(1, 1 + zoomed, squeeze=False)[0]
        for axes in panels:
            for index, line in enumerate(result.lines):
                _plot_line(axes, line, places, index)
                if result.exact:
                    _plot_further(axes, line, result, places, index)
            if logarithmic:
                axes.set_xscale("log")
                axes.minorticks_off()
            axes.set_xticks(list(places.values()), column_heads(result))
            axes.set_xlabel(columns_words(result))
            axes.set_ylabel(measured_words(result) + (" (%)" if percent else ""))
        if percent:
            # an interval may leave the scale, an accuracy can't
            low, high = panels[0].get_ylim()
            panels[0].set_ylim(max(0, low), min(100.5, high))
            panels[-1].set_ylim(*((CROWDED, 100.2) if zoomed else panels[0].get_ylim()))
        elif _far_apart(numbers):
            panels[0].set_yscale("log")
        handles, labels = panels[0].get_legend_handles_labels()
        labels = [fill(label, LETTERS) for label in labels]
        figure.legend(handles, labels, loc="outside lower center")
        figure.set_figheight(HEIGHT + LEGEND_LINE * sum(1 + label.count("\n") for label in labels))

    return svg(result.name, (WIDTH * (1 + zoomed), HEIGHT), plot)


def _places(levels: tuple[str, ...]) -> tuple[dict[str, float], bool]:
    """Coordinate by level, and whether the axis is logarithmic. On other axes, levels are evenly spaced."""
    try:
        values = {level: float(level_value(level)) for level in levels}
    except ValueError:  # a level that is a word
        values = {}
    if len({level.partition("=")[0] for level in levels}) == 1 and _far_apart(values.values()):
        return values, True
    return {level: float(place) for place, level in enumerate(levels)}, False


def _far_apart(values: Iterable[float]) -> bool:
    """Return True if all finite numbers are positive, and the largest is over `SPREAD` times the smallest."""
    finite = [value for value in values if isfinite(value)]
    return bool(finite) and min(finite) > 0 and max(finite) > SPREAD * min(finite)


def _plot_line(axes: Axes, line: LineResult, places: dict[str, float], index: int) -> None:
    colour, marker = COLOURS[index % len(COLOURS)], MARKERS[index % len(MARKERS)]
    numbers = [(x, line.line.number(level)) for level, x in places.items()] if line.line else []
    theirs = [(x, number) for x, number in numbers if number is not None]
    if theirs:
        at, values = zip(*theirs, strict=True)
        label = f"{line.label}, paper"
        axes.plot(at, values, f"--{marker}", color=colour, mfc="none", lw=1, ms=5, label=label)
    cells = [(places[cell.level], cell) for cell in sorted(line.cells, key=lambda cell: places[cell.level])]
    if any(cell.converged for _, cell in cells):
        axes.errorbar(
            [x for x, _ in cells],
            # a failed training leaves a gap, as the paper's 'No-convergence' does
            [cell.mean.value if cell.converged and isfinite(cell.mean.value) else nan for _, cell in cells],
            yerr=[cell.mean.half or 0.0 for _, cell in cells],
            fmt=f"-{marker}",
            color=colour,
            lw=1.6,
            ms=5,
            capsize=3,
            # numbers that decide nothing must not look like the others
            alpha=0.45 if all(cell.caveat for _, cell in cells) else 1.0,
            label=f"{line.label}, ours",
        )


def _plot_further(
    axes: Axes, line: LineResult, result: TableResult, places: dict[str, float], index: int
) -> None:
    """Plot further metrics of a computed table, dashed and without markers."""
    for number, (metric, words) in enumerate(result.table.also.items()):
        also = {row.key: row.also[metric] for row in line.rows}
        points = sorted(
            (places[cell.level], also[cell.row][cell.level].mean.value)
            for cell in line.cells
            if cell.level in also[cell.row]
        )
        style, colour = FURTHER[number % len(FURTHER)], COLOURS[index % len(COLOURS)]
        if points:
            axes.plot(*zip(*points, strict=True), style, color=colour, lw=1, label=f"{line.label}, {words}")
