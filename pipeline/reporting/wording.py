"""How numbers, levels and ledgers are written, the same in every table and on the page."""

from decimal import ROUND_CEILING, Decimal
from typing import Any

from pipeline.records import Ledger
from pipeline.reporting.guarantees import Guarantee, State
from pipeline.reporting.intervals import Mean
from pipeline.reporting.papers import NO_CONVERGENCE, Printed
from pipeline.reporting.results import Cell

NOT_RUN = "not run"
MINUS = "−"
# A broken guarantee is in capitals, so that nobody reads over it.
VERDICTS: dict[State, str] = {
    "holds": "holds",
    "weaker": "WEAKER THAN CLAIMED",
    "broken": "DOES NOT HOLD",
    "none": "no privacy",
}
# Declared wherever a cell says that training failed; the factor is evaluation's (tested), which needs torch.
CONVERGENCE_RULE = (
    "A seed has converged when its last validation accuracy is above 1.5 times chance. That "
    "none has counts as a finding only on the full budget and after a search of at least 3 step sizes, a "
    "factor of 100 apart."
)
_SYMBOLS = {"epsilon": "ε", "sigma": "σ", "scale": "λ", "inf": "∞"}


def number(value: float) -> str:
    """Three significant digits, with an exponent only where it is very small."""
    return f"{value:.3g}".replace("e-0", "e-") if abs(value) < 1000 else f"{value:,.0f}"


def signed(value: float, decimals: int) -> str:
    """With its sign, a real minus."""
    return f"{value:+.{decimals}f}".replace("-", MINUS)


def printed(value: Printed, decimals: int) -> str:
    """A cell of the paper as the paper prints it."""
    if value.value is None:
        return value.words or ""
    error = "" if value.error is None else f" ± {value.error:.{decimals}f}"
    return f"{value.value:.{decimals}f}{error}"


def with_interval(value: Mean, decimals: int, sign: bool = False) -> str:
    """``mean ± half the 95 % interval (n seeds)``; a single seed has no interval."""
    text = signed(value.value, decimals) if sign else f"{value.value:.{decimals}f}"
    if value.half is None:
        return f"{text} (n = {value.n}: no interval)"
    return f"{text} ± {value.half:.{decimals}f} (n = {value.n})"


def level_words(level: str) -> str:
    """``epsilon=3`` as ``ε = 3``."""
    name, _, value = level.partition("=")
    return f"{_SYMBOLS.get(name, name)} = {level_value(level)}" if value else level


def level_value(level: str) -> str:
    """``epsilon=inf`` as ``∞``: a column's head."""
    value = level.partition("=")[2] or level
    return _SYMBOLS.get(value, value)


def settings_words(settings: dict[str, Any]) -> str:
    """``batch 1024, learning rate 0.5``."""
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in settings.items())


def bound(ledger: Ledger) -> str:
    """What is proven: ``ε ≤ 2.87``, or that nothing is."""
    return "no bound" if ledger.accounted is None else f"ε ≤ {number(_upwards(ledger.accounted))}"


def _upwards(value: float) -> float:
    """Three significant digits and never less than ``value``: a bound rounded down would not be one."""
    exact = Decimal(f"{value:.9g}")  # 3 * 0.92 is no reason to print 2.77
    return float(exact.quantize(Decimal(1).scaleb(exact.adjusted() - 2), rounding=ROUND_CEILING))


def guarantee_words(found: Guarantee) -> str:
    """The verdict in a cell: the proven bound, and whether something is wrong with it."""
    if found.state == "holds":
        return bound(found.ledger)
    if found.state == "weaker":
        return f"{VERDICTS['weaker']}: {bound(found.ledger)}"
    return VERDICTS[found.state]


def convergence(cell: Cell) -> str:
    """``No-convergence`` or ``2 of 3 converged``; nothing where every seed did."""
    if cell.converged == 0:
        return NO_CONVERGENCE
    return "" if cell.converged == cell.mean.n else f"{cell.converged} of {cell.mean.n} converged"


def cell_text(cell: Cell, decimals: int) -> str:
    """Ours, and how far from the paper's: ``96.70 ± 0.31 (n = 3), +0.02``.

    Before it whether training failed, after it why that is no finding, where it is none.
    """
    failed = convergence(cell)
    text = (f"{failed}: " if failed else "") + with_interval(cell.mean, decimals)
    gap = "" if cell.difference is None else f", {signed(cell.difference, decimals)}"
    return text + gap + (f" [{cell.untried}]" if cell.untried else "")
