"""Plot of a table: measured and printed numbers by level."""

from collections.abc import Iterable
from math import isfinite, nan
from textwrap import fill

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pipeline.reporting.drawing.style import COLOURS, LEGEND_LINE, columns, remark, svg
from pipeline.reporting.printed import Table
from pipeline.reporting.results import RowResult, TableResult
from pipeline.reporting.wording import column_heads, columns_words, level_value, measured_words

# one colour a line of the paper, one marker and dash a row of that line
MARKERS, DASHES = "osD^vP", ("-", "-.", ":")
FURTHER = ("--", ":", "-.")  # dashes of further metrics
LETTERS = 62  # of a legend's line
WIDTH, HEIGHT = 5.6, 4.0  # of the plot, in inches
SPREAD = 10.0  # levels, or numbers that aren't percents, further apart stand on a logarithmic axis


def draw(result: TableResult) -> str | None:
    """The table as a plot: paper hollow and dashed, ours filled with intervals; None without any number.

    Where nothing was trained, the table's further metrics stand beside it, dashed and without marks.
    """
    ours = any(cell.converged for cell in result.cells)
    theirs = any(
        (printed := line.values.get(level)) and printed.value is not None
        for line in result.table.lines
        for level in result.levels
    )
    if not ours and not theirs:
        return None

    places, logarithmic = _places(result.levels)

    def plot(figure: Figure) -> None:
        axes = figure.add_subplot()
        for index, line in enumerate(result.lines):
            colour = COLOURS[index % len(COLOURS)]
            points = [
                (x, printed.value)
                for level, x in places.items()
                if line.line and (printed := line.line.values.get(level)) and printed.value is not None
            ]
            if points:
                axes.plot(
                    *columns(points),
                    "--o",
                    color=colour,
                    mfc="none",
                    lw=1,
                    ms=5,
                    label=f"{line.label}, paper",
                )
            for number, row in enumerate(line.rows):
                style = DASHES[number % len(DASHES)] + MARKERS[number % len(MARKERS)]
                _plot_row(axes, row, places, colour, style)
                if result.exact:
                    _plot_further(axes, row, result.table, places, colour)
        if logarithmic:
            axes.set_xscale("log")
            axes.minorticks_off()
        axes.set_xticks(list(places.values()), column_heads(result))
        axes.set_xlabel(columns_words(result))
        percent = result.table.unit == "percent"
        axes.set_ylabel(measured_words(result) + (" (%)" if percent else ""))
        handles, labels = axes.get_legend_handles_labels()
        labels = [fill(label, LETTERS) for label in labels]
        figure.legend(handles, labels, loc="outside lower center")
        figure.set_figheight(HEIGHT + LEGEND_LINE * sum(1 + label.count("\n") for label in labels))
        if percent:
            # an interval may leave the scale, an accuracy can't
            low, high = axes.get_ylim()
            axes.set_ylim(max(0, low), min(100.5, high))
        elif _far_apart([cell.mean.value for cell in result.cells]):
            axes.set_yscale("log")

    return svg(result.name, (WIDTH, HEIGHT), plot)


def _places(levels: tuple[str, ...]) -> tuple[dict[str, float], bool]:
    """Place of each level on the axis, and True for a logarithmic axis; evenly spaced otherwise."""
    try:
        values = {level: float(level_value(level)) for level in levels}
    except ValueError:  # words
        values = {}
    if len({level.partition("=")[0] for level in levels}) == 1 and _far_apart(values.values()):
        return values, True
    return {level: float(place) for place, level in enumerate(levels)}, False


def _far_apart(values: Iterable[float]) -> bool:
    """Return True if the largest finite number is more than `SPREAD` times a smallest one above zero."""
    finite = [value for value in values if isfinite(value)]
    return bool(finite) and min(finite) > 0 and max(finite) > SPREAD * min(finite)


def _plot_further(axes: Axes, row: RowResult, table: Table, places: dict[str, float], colour: str) -> None:
    further = [(words, row.also[metric]) for metric, words in table.also.items() if row.also[metric]]
    for number, (words, cells) in enumerate(further):
        points = [(x, cells[level].mean.value) for level, x in places.items() if level in cells]
        style = FURTHER[number % len(FURTHER)]
        axes.plot(*columns(points), style, color=colour, lw=1, label=f"{row.declared.label}, {words}")


def _plot_row(axes: Axes, row: RowResult, places: dict[str, float], colour: str, style: str) -> None:
    cells = [(x, row.cells[level]) for level, x in places.items() if level in row.cells]
    if not any(cell.converged for _, cell in cells):
        return
    axes.errorbar(
        [x for x, _ in cells],
        # training that failed leaves a gap, as the paper's 'No-convergence' does
        [cell.mean.value if cell.converged and isfinite(cell.mean.value) else nan for _, cell in cells],
        yerr=[cell.mean.half or 0.0 for _, cell in cells],
        fmt=style,
        color=colour,
        lw=1.6,
        ms=5,
        capsize=3,
        # what is no reproduction must not look like one
        alpha=1.0 if row.comparable else 0.45,
        label=f"{row.declared.label}, ours" + remark(row, " ({})"),
    )
