"""Pictures of the relevance of features."""

from collections.abc import Iterator

import numpy as np
from matplotlib.axes import Axes

from pipeline.reporting import histories
from pipeline.reporting.drawing.style import Panels
from pipeline.reporting.results import RowResult, TableResult
from pipeline.reporting.wording import level_words
from pipeline.results.records import RELEVANCE

SUFFIX = "relevance"  # of the figure's file
TITLE = "Relevance of features in {}"  # for screen readers, of the table
CAPTION = (
    "The noisy relevance of every input feature, the same for all examples, of the first seed; channels "
    "are added up. Each picture has a scale of its own."
)
COLOURS = "YlOrRd"  # dark red is most relevant
PANELS = Panels(3, 2.8, 2.5)
Picture = np.ndarray  # (height, width)


def draw(result: TableResult) -> str | None:
    """A picture for each row and level: the first seed's, as last noted; None without any.

    Raises:
        UserError: a row's history is not one.
    """

    def plot(axes: Axes, panel: tuple[RowResult, str, Picture]) -> None:
        row, level, picture = panel
        axes.set_title(f"{row.declared.label}, {level_words(level)}\n{row.key}")
        # drawn as one small image, a pixel a feature, that the viewer enlarges
        shown = axes.imshow(picture, cmap=COLOURS, interpolation="none")
        axes.set_axis_off()
        # each with a scale of its own: noise is many times as large at one level as at another
        bar = axes.figure.colorbar(shown, cax=axes.inset_axes((1.04, 0.1, 0.05, 0.8)))
        bar.outline.set_visible(False)

    pictured = [(row, level, picture) for row in result.rows for level, picture in pictures(row)]
    return PANELS.svg(f"{result.name}-{SUFFIX}", pictured, plot)


def pictures(row: RowResult) -> Iterator[tuple[str, Picture]]:
    """(level, picture) of the levels that have one, in the record's order."""
    history = histories.read(row.history) if row.cells and row.history else {}
    for level in row.cells:
        relevances: dict[tuple[int, int], float] = {}
        for metric, by_level in history.items():
            if metric.startswith(RELEVANCE) and level in by_level:
                _, line, column = map(int, metric.removeprefix(RELEVANCE).split("/"))
                by_seed = by_level[level]
                value = by_seed[min(by_seed)][-1][1]
                # a pixel is as relevant as its channels together
                relevances[line, column] = relevances.get((line, column), 0.0) + value
        if relevances:
            height, width = (1 + max(places) for places in zip(*relevances, strict=True))
            picture = np.full((height, width), np.nan)
            for place, value in relevances.items():
                picture[place] = value
            yield level, picture
