"""Expected gradient norms of a network's layers against epochs, as a figure."""

from collections import defaultdict

from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from pipeline.reporting.drawing.style import COLOURS, Panels, columns, thinned
from pipeline.reporting.histories import Curve, averages
from pipeline.reporting.results import RowResult, TableResult
from pipeline.reporting.wording import level_words

SUFFIX = "layers"  # of the figure's file
TITLE = "Gradient norms of layers in {}"  # for screen readers, of the table
CAPTION = (
    "Expected gradient norm over the public images, a line a layer, of each row at the level that "
    "reached most; mean over seeds."
)
PREFIX = "layer_norm/"  # of a history's metrics: layer_norm/KIND/NAME
KINDS = ("conv", "norm", "shortcut", "linear", "other")
PANELS = Panels(3, 4.2, 3.2, "expected gradient norm", sharex=False)
Norms = dict[str, list[Curve]]  # kind -> a curve a layer


def draw(result: TableResult) -> str | None:
    """A panel a row, at the level that reached most, and in it a line a layer; None without any norm.

    Raises:
        UserError: a row's history is not one.
    """

    def plot(axes: Axes, panel: tuple[RowResult, str, Norms]) -> None:
        row, level, norms = panel
        axes.set_title(f"{row.key}\n{level_words(level)}")
        axes.set_xlabel("epoch")
        axes.set_yscale("log")
        _plot(axes, norms)

    shown = [(row, level, norms) for row in result.rows for level, norms in _norms(row)]
    kinds = [kind for kind in KINDS if any(kind in norms for _, _, norms in shown)]
    legend = {kind: Line2D([], [], color=COLOURS[KINDS.index(kind)]) for kind in kinds}
    return PANELS.svg(f"{result.name}-{SUFFIX}", shown, plot, legend)


def _norms(row: RowResult) -> list[tuple[str, Norms]]:
    """(level, norms) of the level that reached most among those with norms; nothing where none has."""
    by_level_and_kind: dict[str, Norms] = defaultdict(lambda: defaultdict(list))
    for metric, by_level in (averages(row.history) if row.cells else {}).items():
        if metric.startswith(PREFIX):
            kind = metric.removeprefix(PREFIX).partition("/")[0]
            for level, curve in by_level.items():
                by_level_and_kind[level][kind].append(curve)
    best = max(
        by_level_and_kind.keys() & row.cells.keys(),
        key=lambda level: row.cells[level].mean.value,
        default=None,
    )
    return [] if best is None else [(best, by_level_and_kind[best])]


def _plot(axes: Axes, norms: Norms) -> None:
    for kind, curves in norms.items():
        for curve in curves:
            axes.plot(*columns(thinned(curve)), color=COLOURS[KINDS.index(kind)], lw=0.7, alpha=0.8)
