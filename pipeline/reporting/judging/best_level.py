"""What a row reaches at its best level, and whether another row's best level suits it.

Validation data say which level is best, so that test data choose nothing they are compared by.
"""

from statistics import fmean

from pipeline.reporting.judging.intervals import Mean, difference, paired
from pipeline.reporting.results import Cell, RowResult


def best(row: RowResult | None) -> Cell | None:
    """The cell that validates best on average; of equal ones the first. None where the row was not run."""
    return max(row.cells.values(), key=_validated, default=None) if row else None


def lead(left: RowResult | None, right: RowResult | None) -> Mean | None:
    """``left`` less ``right``, each at its best level; None where one of them has not been run."""
    one, other = best(left), best(right)
    return difference(one.values, other.values) if one and other else None


def shortfall(left: RowResult | None, right: RowResult | None) -> Mean | None:
    """What ``right`` misses of its own best at the level where ``left`` is best; None where not run there."""
    chosen, own = best(left), best(right)
    if right is None or chosen is None or own is None or chosen.level not in right.cells:
        return None
    return paired(own.by_seed, right.cells[chosen.level].by_seed)


def _validated(cell: Cell) -> float:
    return fmean(replica.metrics["validation_accuracy"] for replica in cell.replicas)
