"""The one place where a printed value is judged, by the rule of `judging.rule`."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby

from pipeline.params import Row
from pipeline.reporting.filled import PaperResult
from pipeline.reporting.judging.rule import FEWEST_SEEDS, Verdict, judge
from pipeline.reporting.printed import Line, Printed, Table
from pipeline.reporting.results import Cell, LineResult, RowResult, Status, TableResult, Value
from pipeline.reporting.wording import verdict_words


def judged(tables: Sequence[TableResult]) -> Iterator[TableResult]:
    """A paper's tables with each printed value judged, by the rows of all parts of its table."""
    for _, parts in groupby(tables, key=lambda table: table.key):
        together = list(parts)
        rows: dict[str, list[RowResult]] = {}
        for line in (line for part in together for line in part.lines):
            rows.setdefault(line.label, []).extend(line.rows)
        for part in together:
            lines = (_judged(replace(line, rows=tuple(rows[line.label])), part.table) for line in part.lines)
            of_part = zip(part.lines, lines, strict=True)
            yield replace(part, lines=tuple(replace(line, values=all_.values) for line, all_ in of_part))


def every(*results: PaperResult) -> list[Value]:
    """Every value printed in the papers' tables, declared or not; none of an experiment of our own."""
    return [
        value
        for result in results
        for key, table in result.paper.tables.items()
        if not table.own
        for line in table.lines
        for filled in [result.line(f"{key}/{line.key}") or _judged(LineResult(line.label, line, ()), table)]
        for of_metric in filled.values.values()
        for value in of_metric.values()
    ]


def _judged(result: LineResult, table: Table) -> LineResult:
    """The line with each of its printed values judged."""
    line = result.line
    if line is None:
        return result
    values = {"": {level: _value(table, line, result, level) for level in line.values}}
    for metric, printed in line.also.items():
        measured = replace(result, rows=tuple(row.measured(metric) for row in result.rows))
        values[metric] = {level: _value(table, line, measured, level, metric) for level in printed}
    return replace(result, values=values)


def _value(table: Table, line: Line, result: LineResult, level: str, metric: str = "") -> Value:
    row = result.deciding(level)
    cell = row.cells.get(level) if row else None
    verdict = None
    if row is None or cell is None:
        status, words = _missing(line, result, row, level)
    elif why := _why_not(row, cell):
        status, words = "not judged", why
    else:
        status, words, verdict = _compared(
            table, row, cell, (line.also[metric] if metric else line.values)[level]
        )
    if not metric and (uncounted := line.uncounted.get(level)):
        status, words = "not counted", f"{words}; not counted: {uncounted}"
    return Value(status, words, row, cell.planned if cell else False, verdict)


def _compared(
    table: Table, row: RowResult, cell: Cell, printed: Printed
) -> tuple[Status, str, Verdict | None]:
    """The verdict of the rule, in a word, in words, and as it is."""
    margin, rounding = table.margin_at(printed), printed.rounding(table.decimals)
    verdict = judge(cell.values, not isinstance(row.declared, Row), cell.failed, printed, margin, rounding)
    if verdict is None:
        return "not judged", f"the paper prints {printed.words!r} there", None
    if verdict.name == "below" and any(mark.fewer_data for mark in row.marks):
        return "not judged", "below, but on too small a part of the data", None
    return verdict.name, verdict_words(verdict), verdict


def _why_not(row: RowResult, cell: Cell) -> str:
    """The reason why a cell decides nothing about a printed value; '' where it may."""
    against = [mark for mark in row.marks if mark.inconclusive]
    if any(mark.training for mark in against):
        fewer = any(mark.fewer_data for mark in against)
        return "too small a part of the data" if fewer else "too small a budget"
    for mark in against:
        if not mark.fewer_data:
            return mark.words
    if cell.untried:
        return "too few step sizes tried"
    n = len(cell.values)
    if n < FEWEST_SEEDS and isinstance(row.declared, Row):
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
    return "not run", "only variants of it were run" if ran else "only variants of it are declared"
