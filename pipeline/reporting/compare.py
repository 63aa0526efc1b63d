"""Comparison of two rows at equal proven epsilon."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, isfinite

from pydantic import ValidationError

from dprepro.errors import UserError
from dprepro.pipeline.params import Settings
from dprepro.pipeline.reporting.cells import RecordCells
from dprepro.pipeline.reporting.judging.guarantees import SAME, incomparable
from dprepro.pipeline.reporting.judging.intervals import Mean, contrast
from dprepro.pipeline.reporting.printed import Table
from dprepro.pipeline.reporting.results import Cell, validation
from dprepro.pipeline.results import records
from dprepro.pipeline.results.schema import Ledger
from dprepro.rounding import rounded_down

DIGITS = 4  # significant digits of a suggested setting
TABLE = Table(name="", title="", axis="", columns=[], own=True)  # of accuracies in percent


@dataclass(frozen=True)
class Comparison:
    """A level of the first row, and the comparable level of the second row."""

    cell: Cell
    rival: Cell | None  # has an equal proven epsilon, or else a smaller one; None: no such level
    difference: Mean | None  # accuracy of the first minus that of the second
    lacking: bool  # the second row has no level with an equal proven epsilon
    asked: float | None  # setting `epsilon` for such a level; None: none is needed or known


def proven(cell: Cell) -> float:
    """Proven epsilon of a cell's worst seed; infinity if none is proven."""
    epsilon_upper = cell.guarantee.ledger.epsilon_upper
    return inf if epsilon_upper is None else epsilon_upper


def compared(first: str, second: str, settings: Settings) -> list[Comparison]:
    """Compare each level of row ``first`` with row ``second`` at the same proven epsilon.

    Raises:
        UserError: a row doesn't exist or was not run, or the rows' epsilons are for different data sets,
            neighbours or deltas.
    """
    sets = [settings.split(settings.row(key).data).raw for key in (first, second)]
    if sets[0] != sets[1]:
        raise UserError(f"{first} and {second}: epsilons of different data sets, {sets[0]} and {sets[1]}")
    bounded = [cell for cell in _cells(second, settings) if isfinite(proven(cell))]
    comparisons = []
    for cell in _cells(first, settings):
        epsilon, ledger = proven(cell), cell.guarantee.ledger
        for other in bounded if isfinite(epsilon) else ():
            if why := incomparable(ledger, other.guarantee.ledger):
                raise UserError(f"{first} and {second}: epsilons that can't be compared: {why}")
        rival = _rival(epsilon, bounded)
        difference = contrast([(1.0, first, cell), (-1.0, second, rival)]) if rival else None
        equal = rival is not None and epsilon <= SAME * proven(rival)
        lacking = isfinite(epsilon) and bool(bounded) and not equal
        asked = _asked(second, ledger, settings) if lacking else None
        comparisons.append(Comparison(cell, rival, difference, lacking, asked))
    return comparisons


def _rival(epsilon: float, bounded: Sequence[Cell]) -> Cell | None:
    """Cell in ``bounded`` with the proven epsilon ``epsilon``; if there is none, one with a smaller epsilon.

    If there are several, the one with the highest validation accuracy is taken. Test data play no part.
    """
    if not 0 < epsilon < inf:
        return None
    same = [rival for rival in bounded if epsilon / SAME <= proven(rival) <= SAME * epsilon]
    return max(same or [rival for rival in bounded if proven(rival) < epsilon], key=validation, default=None)


def _asked(key: str, ledger: Ledger, settings: Settings) -> float | None:
    """Value of the setting `epsilon` that gives row ``key`` the ledger's proven epsilon; None: not known."""
    row, epsilon, delta = settings.rows[key], ledger.epsilon_upper, ledger.delta
    settable = (
        "accountant" in row.own_settings.model_fields and (row.axis or row.own_settings.axis) == "epsilon"
    )
    if not settable or not epsilon or not delta:
        return None
    try:
        level = row.configured({"epsilon": epsilon})
        examples = settings.split(row.data).train
        rate, steps = level.batch / examples, level.total_steps(examples)
        if level.accountant == "rdp":  # needs more noise at the same epsilon
            from dprepro.accountants.calibration import noise_for, poisson_gaussian, tightest
            from dprepro.accountants.rdp import rdp_epsilon

            noise = noise_for(epsilon, delta, rate, steps, tightest(epsilon, delta, steps))
            epsilon = rdp_epsilon(poisson_gaussian(rate, noise, steps), delta)
    except (ValidationError, UserError):
        return None
    return float(rounded_down(epsilon, DIGITS))


def _cells(key: str, settings: Settings) -> list[Cell]:
    """Cells of a row, sorted by falling proven epsilon."""
    record = records.read(key, settings.row(key))
    if record is None:
        raise UserError(f"{key}: not run; `dprepro train {key}`, `evaluate` and `ledger` make its numbers")
    cells = RecordCells(record, TABLE).cells(TABLE.metric, {})
    return sorted(cells.values(), key=lambda cell: -proven(cell))
