"""Figure of trade-off curves: errors of the best attack on two neighbouring data sets."""

from collections.abc import Iterator
from itertools import cycle

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from dprepro.pipeline.reporting.drawing.style import COLOURS, INK, LEGEND_LINE, svg
from dprepro.pipeline.reporting.judging.guarantees import gaussian_error
from dprepro.pipeline.reporting.results import RowResult, TableResult
from dprepro.pipeline.reporting.wording import level_words
from dprepro.pipeline.results.schema import Ledger

TITLE = "Trade-off curves of {}"  # for screen readers; {} is the name of the table
CAPTION = (
    "Bound on the errors of every attack that distinguishes two neighbouring data sets. At each point of the "
    "solid curve, the type II error β is proven to be at least this large at the type I error α, for the "
    "mechanism of the row. The lines between points are not proven. A curve near 1 − α (dotted) means that "
    "no attack is much better than a guess. A curve that follows the axes rules out no attack. G<sub>μ</sub> "
    "(dashed) is the central limit's approximation, not a bound. Rows with the same curve are drawn once."
)
GRID = 200  # intervals between the drawn points of G_mu
ACROSS, SIDE, HEAD = 3, 2.8, 0.5  # panels per line; side of a panel and height of its title, in inches
POINTS = 200  # number of points drawn of a curve, enough for a screen
Ledgers = tuple[tuple[str, Ledger], ...]  # (name of a curve, its ledger)


def draw(result: TableResult) -> str | None:
    """SVG text of a table's trade-off curves; None without any curve.

    Levels with equal curves share a panel. Each row has a colour. Solid: computed curve of the mechanism as
    run. Dashed: G_mu by the central limit theorem. Dotted: 1 - alpha, the curve of perfect privacy.
    """

    shown = list(_panels(result))
    if not shown:
        return None
    names = dict.fromkeys(name for _, ledgers in shown for name, _ in ledgers)
    colours = dict(zip(names, cycle(COLOURS), strict=False))
    legend = {name: Line2D([], [], color=colour, lw=1.6) for name, colour in colours.items()}
    styles = {"proven bound": "-", "G_μ, an approximation": "--", "1 − α, perfect privacy": ":"}
    legend |= {words: Line2D([], [], color=INK, ls=style, lw=1.2) for words, style in styles.items()}
    across = min(ACROSS, len(shown))
    down = -(-len(shown) // across)

    def plot(figure: Figure) -> None:
        grid = figure.subplots(down, across, squeeze=False, sharex=True, sharey=True)
        for axes in grid.flat[len(shown) :]:
            axes.remove()
        for axes, (levels, ledgers) in zip(grid.flat, shown, strict=False):
            axes.tick_params(labelbottom=True, labelleft=True)
            axes.set_title(", ".join(map(level_words, levels)), wrap=True)
            axes.set_xlabel("type I error α")
            axes.set_ylabel("type II error β")
            axes.set_aspect("equal")
            axes.plot([0, 1], [1, 0], ":", color=INK, lw=1)
            for name, ledger in ledgers:
                _plot(axes, ledger, colours[name])
        figure.legend(list(legend.values()), list(legend), loc="outside lower center")

    height = (SIDE + HEAD) * down + LEGEND_LINE * (1 + len(legend))
    return svg(f"{result.name}-tradeoff", (SIDE * across, height), plot)


def _panels(result: TableResult) -> Iterator[tuple[list[str], Ledgers]]:
    """Yield the levels with the same curves, and the ledgers of these curves, for each panel."""
    by_curves: dict[tuple[tuple[str, object], ...], tuple[list[str], Ledgers]] = {}
    for level in result.levels:
        ledgers = tuple(_ledgers(result, level))
        if ledgers:
            alike = tuple((name, (ledger.tradeoff, ledger.mu)) for name, ledger in ledgers)
            by_curves.setdefault(alike, ([], ledgers))[0].append(level)
    yield from by_curves.values()


def _ledgers(result: TableResult, level: str) -> Iterator[tuple[str, Ledger]]:
    """Yield the first row's name and ledger for each distinct proven curve at the level."""
    seen = set()
    for row in result.rows:
        cell = row.cells.get(level)
        if cell is None or cell.guarantee.state == "none_proven":
            continue
        ledger = cell.guarantee.ledger
        if ledger.tradeoff and (ledger.tradeoff, ledger.mu) not in seen:
            seen.add((ledger.tradeoff, ledger.mu))
            yield _name(row), ledger


def _name(row: RowResult) -> str:
    return row.declared.label + (f" ({row.budget})" if row.budget != "full" else "")


def _plot(axes: Axes, ledger: Ledger, colour: str) -> None:
    curve = list(ledger.tradeoff)
    stride = -(-len(curve) // POINTS)
    axes.plot(*zip(*[*curve[:-1:stride], curve[-1]], strict=True), color=colour, lw=1.6)
    if ledger.mu is not None:
        alphas = [index / GRID for index in range(GRID + 1)]
        betas = [gaussian_error(alpha, ledger.mu) for alpha in alphas]
        axes.plot(alphas, betas, "--", color=colour, lw=1)
