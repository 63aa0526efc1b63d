"""Verdicts on printed values by the rule of `judging.rule`; they are made only here."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import sqrt
from statistics import fmean

from dprepro.pipeline.reporting.judging.fairness import unfair
from dprepro.pipeline.reporting.judging.rule import FEWEST_SEEDS, Verdict, half_width, judge
from dprepro.pipeline.reporting.printed import Line, Printed, PrintedTables, Table
from dprepro.pipeline.reporting.results import Cell, Evidence, LineResult, RowResult, Status, Value, Values
from dprepro.pipeline.reporting.wording import verdict_words


def judged(lines: Sequence[LineResult], table: Table) -> tuple[LineResult, ...]:
    """Lines of a table, with verdicts on their printed values."""
    return tuple(replace(line, values=_values(line, lines, table)) for line in lines)


def printed_values(paper: PrintedTables, lines: Mapping[str, LineResult]) -> Iterator[Value]:
    """Verdicts on all values of a paper's tables; ``lines`` are the judged lines with rows, by reference."""
    for key, table in paper.tables.items():
        for line in () if table.own else table.lines:
            filled = lines.get(f"{key}/{line.key}")
            values = filled.values if filled else _values(LineResult(line.label, line, ()), (), table)
            yield from (value for by_level in values.values() for value in by_level.values())


def _values(result: LineResult, lines: Sequence[LineResult], table: Table) -> Values:
    """Verdicts on a line's printed values, by metric and level; ``lines`` are all lines of the table."""
    line = result.line
    if line is None:
        return {}
    values = {"": {level: _value(table, line, result, lines, level) for level in line.values}}
    for metric, printed in line.also.items():
        measured = replace(result, rows=tuple(row.measured(metric) for row in result.rows))
        values[metric] = {level: _value(table, line, measured, (), level, metric) for level in printed}
    return values


def _value(
    table: Table, line: Line, result: LineResult, lines: Sequence[LineResult], level: str, metric: str = ""
) -> Value:
    row = result.deciding(level)
    cell = row.cells.get(level) if row else None
    if row is None or cell is None:
        value = Value(*_missing(line, result, row, level), row, level)
    elif why := _why_not(row, cell):
        value = Value("not judged", why, row, level, evidence(result, row, cell))
    else:
        others = [other for each in lines if each.line is not line and (other := each.deciding(level))]
        value = _compared(table, line, result, row, cell, others, level, metric)
    if not metric and (uncounted := line.uncounted.get(level)):
        value = replace(value, status="not counted", words=f"{value.words}; not counted: {uncounted}")
    return value


def _compared(
    table: Table,
    line: Line,
    result: LineResult,
    row: RowResult,
    cell: Cell,
    others: Sequence[RowResult],
    level: str,
    metric: str,
) -> Value:
    """Verdict on a printed value by `rule.judge`; 'not judged' if the comparison is unfair."""
    printed = (line.also[metric] if metric else line.values)[level]
    margin = table.margin_at(printed) if metric else table.judged_margin(level, printed)
    trained, error = row.trained is not None, _test_error(table, cell, metric)

    def by(within: float) -> Verdict | None:
        rounding = printed.rounding(table.decimals)
        return judge(cell.values, not trained, cell.failed, printed, within, rounding, error)

    verdict, evident = by(margin), evidence(result, row, cell)
    if verdict is None:
        return Value("not judged", f"the paper prints {printed.words!r} there", row, level, evident)
    away = None if printed.value is None or verdict.share else cell.mean.value - printed.value
    by_table = by(table.margin_at(printed))
    value = Value(
        verdict.name,
        verdict_words(verdict),
        row,
        level,
        evident,
        verdict,
        margin,
        verdict_words(by_table) if by_table and by_table.name != verdict.name else "",
        away,
        half_width(cell.values, printed.error, error) if trained and away is not None else 0.0,
        None if metric else _informative(table, line, level, printed, margin),
    )
    if verdict.name not in ("above", "below"):
        return value
    if fewer := [caveat.words for caveat in row.caveats if caveat.fewer_data]:
        why = "too small a part of the data"
        words = f"not judged ({verdict.name}): {why}"
        return replace(value, status="not judged", words=words, unfair=(f"{why}: {fewer[0]}",))
    if found := unfair(row, level, others, margin):
        kinds = ", ".join(dict.fromkeys(reason.kind for reason in found))
        reasons = tuple(f"{reason.kind}: {reason.words}" for reason in found)
        return replace(
            value, status="not judged", words=f"not judged ({verdict.name}): {kinds}", unfair=reasons
        )
    return value


def _test_error(table: Table, cell: Cell, metric: str) -> float:
    """Standard error of an accuracy from the finite test set, in percentage points; 0 for other numbers."""
    if table.tested is None or table.unit != "percent" or metric in table.noises or not cell.mean.n:
        return 0.0
    share = min(1.0, max(0.0, cell.mean.value / 100))
    return 100 * sqrt(share * (1 - share) / table.tested)


def _informative(table: Table, line: Line, level: str, printed: Printed, margin: float) -> bool | None:
    """Return False if the mean of the column's other printed values also agrees; None: no other values."""
    others = table.column(level, besides=line.key)
    if printed.value is None:
        return True if others else None
    return abs(fmean(others) - printed.value) > margin if others else None


def evidence(result: LineResult, row: RowResult, cell: Cell) -> Evidence:
    """Knowledge of a cell's earlier results when its row was planned; 'exploratory' without a plan.

    Replaced trainings of the row, or of another row of the cell, count as earlier results.
    """
    if not cell.planned or not row.trained:
        return "exploratory"
    if row.trained.informed:
        return "informed"
    others = [other for other in result.rows if other is not row and cell.level in other.cells]
    earlier = any(other.replaced or _began(other.cells[cell.level]) <= _began(cell) for other in others)
    # of replaced trainings, such as those before the row had its plan, no time is recorded
    return "after earlier results" if row.replaced or earlier else "blind"


def _began(cell: Cell) -> float:
    """Unix time at which the cell's first training started; 0 if it isn't recorded."""
    return min((replica.started or 0.0 for replica in cell.replicas), default=0.0)


def _why_not(row: RowResult, cell: Cell) -> str:
    """Reason why a cell can't decide a printed value; '' if it may decide."""
    against = [caveat for caveat in row.caveats if caveat.inconclusive]
    if any(caveat.training for caveat in against):
        fewer = any(caveat.fewer_data for caveat in against)
        return "too small a part of the data" if fewer else "too small a budget"
    for caveat in against:
        if not caveat.fewer_data:
            return caveat.words
    if cell.untried:
        return "too narrow a search of step sizes"
    n = len(cell.values)
    if n < FEWEST_SEEDS and row.trained:
        return "one seed" if n == 1 else f"{n} seeds"
    if row.planned_seeds and not cell.planned:
        return f"trained otherwise than planned, or fewer than {row.planned_seeds} seeds"
    return ""


def _missing(line: Line, result: LineResult, row: RowResult | None, level: str) -> tuple[Status, str]:
    if row is not None:
        return ("waits for a GPU", "waits for a GPU") if row.waits else ("not run", "still to be trained")
    if line.untried:
        return "not run", line.untried
    if not result.rows:
        return "not run", "no row is declared"
    ran = any(level in other.cells for other in result.rows)
    return (
        "not run",
        "only changed methods were run" if ran else "only rows with changed methods are declared",
    )
