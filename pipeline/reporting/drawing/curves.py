"""Training curves, and the epsilon spent along them."""

import matplotlib
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from pipeline.reporting.drawing.style import columns, remark, svg, thinned
from pipeline.reporting.histories import Curve, averaged, averages, spending
from pipeline.reporting.results import TableResult
from pipeline.reporting.wording import columns_words, level_value
from pipeline.results.schema import Record

# The first that a history has is drawn.
CURVES = ("validation_accuracy", "train_accuracy", "train_loss")
SPENT = "epsilon_spent"


def draw(result: TableResult) -> str | None:
    """Training curves, a column a row, with the epsilon spent below; None where no row has a history."""
    trained = [
        (row, {**history, **_spent(row.record)})
        for row in result.rows
        if row.record and (history := averages(row.history))
    ]
    if not trained:
        return None
    drawn = [metric for metric in (_drawn([history for _, history in trained]), SPENT) if metric]
    drawn = [metric for metric in drawn if any(metric in history for _, history in trained)]
    colours = matplotlib.colormaps["viridis"]

    def plot(figure: Figure) -> None:
        grid = figure.subplots(len(drawn), len(trained), squeeze=False, sharex="col", sharey="row")
        for column, (row, history) in enumerate(trained):
            grid[0][column].set_title(row.key + remark(row, "\n({})"))
            grid[-1][column].set_xlabel("epoch")
            for line, metric in enumerate(drawn):
                for index, level in enumerate(result.levels):
                    curve = history.get(metric, {}).get(level, [])
                    # the last tenth of viridis is too light for paper
                    colour = colours(0.9 * index / max(1, len(result.levels) - 1))
                    # a training of one note has no line
                    mark = "o" if len(curve) == 1 else None
                    grid[line][column].plot(
                        *columns(thinned(curve)), color=colour, lw=1.3, marker=mark, label=level_value(level)
                    )
        for line, metric in enumerate(drawn):
            grid[line][0].set_ylabel("ε spent" if metric == SPENT else metric.replace("_", " "))
            if metric == SPENT:
                grid[line][0].set_yscale("log")
                grid[line][0].yaxis.set_major_formatter("{x:g}")
                low, high = grid[line][0].get_ylim()
                grid[line][0].yaxis.set_minor_formatter("{x:g}" if high < 10 * low else NullFormatter())
        handles, labels = grid[0][0].get_legend_handles_labels()
        figure.legend(
            handles, labels, loc="outside lower center", ncols=len(labels), title=columns_words(result)
        )

    return svg(f"{result.name}-curves", (max(8.4, 2.8 * len(trained)), 1.2 + 2.3 * len(drawn)), plot)


def _spent(record: Record) -> dict[str, dict[str, Curve]]:
    spent = {level: averaged(curves) for level, curves in spending(record).items()}
    return {SPENT: spent} if spent else {}


def _drawn(curves: list[dict[str, dict[str, Curve]]]) -> str | None:
    return next((metric for metric in CURVES if any(metric in history for history in curves)), None)
