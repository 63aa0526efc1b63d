"""What a row reaches at its best level, and whether another row's best level suits it.

Validation data say which level is best, so that test data choose nothing they are compared by.
"""

from statistics import fmean

from pipeline.reporting.judging.claim_test import BoundedLines, Outcome, Rows, caveat_of, not_run
from pipeline.reporting.judging.intervals import Mean, difference, paired
from pipeline.reporting.printed import PrintedTables
from pipeline.reporting.results import Cell, RowResult
from pipeline.reporting.wording import level_words, with_interval


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


def outcome(test: BoundedLines, title: str, gap: Mean | None, rows: Rows, paper: PrintedTables) -> Outcome:
    """The outcome of a test of two lines whose best levels are ``gap`` apart."""
    one, other = best(rows[test.left]), best(rows[test.right])
    if one is None or other is None or gap is None:
        return not_run(title)
    levels = f"{level_words(one.level)} and {level_words(other.level)}"
    shown = with_interval(gap, paper.decimals_of(test.left), sign=True)
    text = f"{title} ({levels}): {shown}, {test.needs}"
    return Outcome(gap.where(test.above, test.below), text, caveat_of(one, other))


def _validated(cell: Cell) -> float:
    return fmean(replica.metrics["validation_accuracy"] for replica in cell.replicas)
