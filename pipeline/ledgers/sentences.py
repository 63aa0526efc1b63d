"""Texts of numbers, bounds and ledgers, the same in commands, on pages and in privacy statements."""

from math import isinf
from typing import TYPE_CHECKING

from dprepro.accountants.records import Risk, rounded_down, rounded_up
from dprepro.errors import counted
from dprepro.fields import is_large_delta
from dprepro.pipeline.results.schema import EXAMPLE, Composition, Ledger

if TYPE_CHECKING:
    from dprepro.pipeline.ledgers.composition import DataBudget

LARGE = 1e6


def number(value: float) -> str:
    """A number to three significant digits: ``0.0445``, ``71,300``, ``4.13 million``, ``2e-5``, ``∞``."""
    if isinf(value):
        return "∞"
    size, shown = abs(value), abs(float(f"{value:.3g}"))  # 999.7 is shown as 1,000
    if size >= LARGE and shown < 1e9:
        return f"{value / LARGE:.3g} million"
    if size < LARGE and shown >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}".replace("e-0", "e-").replace("e+0", "e").replace("e+", "e")


def upwards(value: float) -> str:
    """Upper bound, rounded up to three significant digits."""
    # 3 * 0.92 is slightly above 2.76 in floating point, and must not become 2.77
    return number(float(rounded_up(float(f"{value:.9g}"), 3)))


def downwards(value: float) -> str:
    """Lower bound, rounded down to three significant digits."""
    return number(float(rounded_down(float(f"{value:.9g}"), 3)))


def composition(spent: Composition) -> str:
    """Epsilon of all trainings of a row and its search together, in a sentence."""
    of = [f"{counted(spent.trainings, 'private training')} of the row"]
    if spent.searched:
        of.append(f"{counted(spent.searched, 'training')} of its search")
    if spent.replaced:
        of.append(counted(spent.replaced, "earlier, replaced training"))
    *earlier, last = of
    listed = f"{', '.join(earlier)} and {last}" if earlier else last
    delta = f" at δ {number(spent.delta)}" if spent.delta else ""
    unit = "" if spent.unit == EXAMPLE else f"{spent.unit}, "
    most = f"at most ε = {upwards(spent.epsilon)}{delta} (neighbours {unit}{spent.neighbouring})"
    text = f"Together, {listed} have {most}."
    if spent.left_out:
        text = (
            f"No bound is proven for {counted(spent.left_out, 'training')}, so none is proven for all "
            f"trainings together. Together, the others ({listed}) have {most}."
        )
    if spent.searched:
        text += (
            " The smaller bound for a random search (Papernot and Steinke 2022) does not apply: the search "
            "trained each candidate of a grid, and the results of all candidates are published."
        )
    return text


def data_budget(budget: "DataBudget") -> str:
    """Epsilon of all trainings on a private data set together, in a sentence."""
    where = [f"{len(names)} {noun}" for names, noun in (
        (budget.rows, "row" if len(budget.rows) == 1 else "rows"),
        (budget.searches, "search" if len(budget.searches) == 1 else "searches"),
    ) if names]  # fmt: skip
    left = f"; no bound is proven for {counted(budget.left_out, 'more training')}" if budget.left_out else ""
    unlinked = f". No row names these searches: {', '.join(budget.unlinked)}" if budget.unlinked else ""
    spent = budget.composition
    if spent is None:
        return f"Data set {budget.data}: no training in {' and '.join(where)} has a bound{unlinked}."
    delta = f" at δ {number(spent.delta)}" if spent.delta else ""
    unit = "an example" if spent.unit == EXAMPLE else spent.unit
    return (
        f"Data set {budget.data}: {counted(spent.total, 'recorded private training')} "
        f"({' and '.join(where)} of params.yaml), together at most ε = {upwards(spent.epsilon)}{delta} "
        f"(neighbouring data sets: {spent.neighbouring}), for {unit} that is in no public "
        f"split and in none of their validation splits{left}{unlinked}."
    )


def attack_risk(risk: Risk, unit: str = EXAMPLE) -> str:
    """Attack risk in words, for a data-protection officer; ``unit``: as in the ledger."""
    others, members = (
        ("examples", "training examples") if unit == EXAMPLE else ("people", "people of the training data")
    )
    return (
        f"Suppose an attack wrongly reports 1 of 100 {others} that were not used for the training. Then it "
        f"correctly reports, on average, at most {upwards(100 * risk.tpr_at_1_percent)} of 100 {members}. "
        "With 1 wrong report in 1,000 it is at most "
        f"{upwards(1000 * risk.tpr_at_01_percent)} of 1,000. A blind guess "
        "reports 1 of 100, or 1 of 1,000, of both kinds. For every attack, the reported share of the "
        f"{members} is at most {upwards(100 * risk.advantage)} percentage points above the reported "
        f"share of other {others}."
    )


def gaussian_dp(risk: Risk) -> str | None:
    """Mu of Gaussian DP in words, with its regret and cut-off; None if there is no such mu."""
    if risk.mu is None or risk.regret is None:
        return None
    return (
        f"μ ≤ {upwards(risk.mu)}, an upper bound for attacks with a false-positive rate of at least "
        f"{number(risk.least_rate)}. The exact trade-off curve differs from this bound by at most "
        f"{upwards(risk.regret)} in both error rates (regret)"
    )


def delta_remark(delta: float | None, examples: int) -> str | None:
    """Remark on a delta above 1 / (10 N), in a sentence; None for a smaller delta."""
    if delta is None or not is_large_delta(delta, examples):
        return None
    return (
        f"δ {number(delta)} is large for {examples:,} examples. A bound with this δ allows a mechanism that "
        f"publishes each example with probability δ, on average {delta * examples:.3g} examples. At most "
        "1 / (10 N) is advised."
    )


def claim(ledger: Ledger) -> str:
    """Claimed epsilon in words; 'above 1e308' if it is too large for a float, 'none' without a claim."""
    if ledger.claimed is not None:
        return upwards(ledger.claimed)
    return "above 1e308" if ledger.claimed_by else "none"


def delta(ledger: Ledger) -> str:
    """Delta in words: ``1e-5``; ``0 (pure)`` for pure DP; ``–`` if there is none."""
    return "–" if ledger.delta is None else number(ledger.delta) if ledger.delta else "0 (pure)"


def bound(ledger: Ledger) -> str:
    """Proven epsilon in words: ``ε ≤ 2.87``, or ``no bound``."""
    return "no bound" if ledger.epsilon_upper is None else f"ε ≤ {upwards(ledger.epsilon_upper)}"
