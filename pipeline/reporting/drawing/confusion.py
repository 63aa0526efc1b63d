"""Confusion matrices of a row on own data: one picture per level, of its first seed."""

from collections.abc import Iterator

import numpy as np
from matplotlib.figure import Figure

from dprepro.pipeline.reporting.drawing.style import INK, svg
from dprepro.pipeline.reporting.wording import level_words
from dprepro.pipeline.results.schema import Evaluation, Scores

MOST = 20  # largest number of classes in a picture


def confusion_pictures(evaluation: Evaluation) -> Iterator[tuple[str, str]]:
    """Yield file name and SVG text for each level with a matrix of at most `MOST` classes.

    Classes are numbered in the order of their labels.
    """
    first = {replica.level: replica for replica in reversed(evaluation.replicas)}
    for level, replica in reversed(first.items()):
        scores = replica.scores
        if isinstance(scores, Scores) and scores.confusion and len(scores.confusion) <= MOST:
            title = f"{level_words(level)}, seed {replica.seed}"
            yield f"confusion {level}.svg", _drawn(title, np.array(scores.confusion))


def _drawn(title: str, matrix: np.ndarray) -> str:
    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        shares = matrix / np.maximum(1, matrix.sum(1, keepdims=True))
        axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
        for (row, column), count in np.ndenumerate(matrix):
            colour = "white" if shares[row, column] > 0.5 else INK
            axes.text(column, row, f"{count:,}", ha="center", va="center", color=colour)
        axes.set_xticks(range(len(matrix)))
        axes.set_yticks(range(len(matrix)))
        axes.grid(visible=False)
        axes.set_xlabel("predicted class")
        axes.set_ylabel("class")
        axes.set_title(f"Test examples, {title}")

    side = 2 + 0.4 * len(matrix)
    return svg(title, (side, side), draw)
