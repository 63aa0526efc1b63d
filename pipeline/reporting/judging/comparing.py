"""Two cells compared: their difference with its interval, and how the comparison is titled."""

from pipeline.reporting.judging.intervals import Mean, computed, difference, paired
from pipeline.reporting.printed import PrintedTables
from pipeline.reporting.results import Cell
from pipeline.reporting.wording import level_words, number


def gap(left: Cell, right: Cell, same_row: bool) -> Mean:
    """``left`` - ``right``; those of one row go seed by seed."""
    if left.mean.exact and right.mean.exact:
        return computed(left.mean.value - right.mean.value)
    return paired(left.by_seed, right.by_seed) if same_row else difference(left.values, right.values)


def of_one_row(left: str, right: str) -> bool:
    """Levels of one row share their seeds' initial weights, and metrics the trained ones."""
    return left.partition(":")[0] == right.partition(":")[0]


def title(
    paper: PrintedTables, sign: str, left: str, right: str | float, level: str, right_at: str | None
) -> str:
    """``LEFT − RIGHT at LEVEL``, shorter where both are one line."""
    one, at = paper.lines[left].label, level_words(level)
    if left == right and right_at:
        return f"{one}, {at} {sign} {level_words(right_at)}"
    other = paper.lines[right].label if isinstance(right, str) else number(right)
    if right_at:
        return f"{one} at {at} {sign} {other} at {level_words(right_at)}"
    return f"{one} {sign} {other} at {at}"
