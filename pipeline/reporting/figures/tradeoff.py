"""Trade-off curves as a figure: how well the best attack tells two neighbouring data sets apart."""

from collections.abc import Iterator

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from pipeline.reporting.drawing.style import COLOURS, INK, LEGEND_LINE, columns, down, panels, svg, thinned
from pipeline.reporting.judging.guarantees import gaussian_error
from pipeline.reporting.results import RowResult, TableResult
from pipeline.reporting.wording import level_words
from pipeline.results.schema import Ledger

SUFFIX = "tradeoff"  # of the figure's file
TITLE = "Trade-off curves of {}"  # for screen readers, of the table
CAPTION = (
    "The errors of the best attack that tells two neighbouring data sets apart: an attacker with type I "
    "error α can't have less type II error than the solid curve, proven for what ran (at its points, "
    "which straight lines join). Near 1 − α (dotted) the attack is a guess; along the axes it never "
    "errs. G<sub>μ</sub> (dashed) is the central limit's approximation, and no bound. Rows of the same "
    "curve are drawn once."
)
GRID = 200  # intervals of the type I errors that G_mu is drawn at
ACROSS, SIDE, HEADING = 3, 2.8, 0.5  # panels beside one another; inches of one, and of what stands over it
Ledgers = tuple[tuple[str, Ledger], ...]  # what a curve is called, and where it comes from


def draw(result: TableResult) -> str | None:
    """A panel for each level whose ledgers differ, a colour for each row; None without any curve.

    Solid: the numeric curve of what ran. Dashed: G_mu of the central limit theorem. Dotted: 1 - alpha, of a
    mechanism that tells nothing.
    """
    shown = list(_panels(result))
    if not shown:
        return None
    names = list(dict.fromkeys(name for _, ledgers in shown for name, _ in ledgers))

    def plot(figure: Figure) -> None:
        grid = panels(figure, len(shown), ACROSS, "type II error β")
        for axes, (levels, ledgers) in zip(grid, shown, strict=True):
            axes.set_title(", ".join(map(level_words, levels)), wrap=True)
            axes.set_xlabel("type I error α")
            axes.set_aspect("equal")
            axes.plot([0, 1], [1, 0], ":", color=INK, lw=1)
            for name, ledger in ledgers:
                _plot(axes, ledger, COLOURS[names.index(name) % len(COLOURS)])
        styles = (("-", "what ran"), ("--", "G_μ, an approximation"), (":", "1 − α, perfect privacy"))
        handles = [Line2D([], [], color=COLOURS[i % len(COLOURS)], lw=1.6) for i in range(len(names))]
        handles += [Line2D([], [], color=INK, ls=style, lw=1.2) for style, _ in styles]
        figure.legend(handles, [*names, *(words for _, words in styles)], loc="outside lower center", ncols=2)

    legend = LEGEND_LINE * -(-(len(names) + 3) // 2)
    rows = down(len(shown), min(ACROSS, len(shown)))
    return svg(f"{result.name}-{SUFFIX}", (SIDE * ACROSS, (SIDE + HEADING) * rows + legend), plot)


def _panels(result: TableResult) -> Iterator[tuple[list[str], Ledgers]]:
    """Levels with the same curves (they differ in what privacy doesn't depend on), and these."""
    by_curves: dict[tuple[tuple[str, object], ...], tuple[list[str], Ledgers]] = {}
    for level in result.levels:
        own = tuple(_ledgers(result, level))
        if own:
            alike = tuple((name, (ledger.tradeoff, ledger.mu)) for name, ledger in own)
            by_curves.setdefault(alike, ([], own))[0].append(level)
    yield from by_curves.values()


def _ledgers(result: TableResult, level: str) -> Iterator[tuple[str, Ledger]]:
    """The rows whose curve holds at the level; those of the same curve under the first one's name."""
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
    axes.plot(*columns(thinned(list(ledger.tradeoff))), color=colour, lw=1.6)
    if ledger.mu is not None:
        axes.plot(*columns(gaussian(ledger.mu)), "--", color=colour, lw=1)


def gaussian(mu: float) -> list[tuple[float, float]]:
    """Points (alpha, beta) of G_mu(alpha) = Phi(Phi^-1(1 - alpha) - mu) (Dong et al. 2019, Eq. 6)."""
    return [(index / GRID, gaussian_error(index / GRID, mu)) for index in range(GRID + 1)]
