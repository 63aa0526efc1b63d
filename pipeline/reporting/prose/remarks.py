"""Remarks on a table: missing numbers and missing privacy."""

from collections.abc import Sequence

from pipeline.reporting import vocabulary, wording
from pipeline.reporting.results import Cell, LineResult, TableResult


def alarms(result: TableResult) -> list[tuple[list[str], tuple[str, str]]]:
    """(rows, (verdict, reason)) of cells whose bound is missing, too large or useless."""

    def alarm(cell: Cell) -> tuple[str, str] | None:
        guarantee = cell.guarantee
        if guarantee.state in ("holds", "none"):
            return None
        return vocabulary.PRIVACY[guarantee.state].text, guarantee.reason or ""

    return result.rows_by(alarm)


def notes(result: TableResult) -> list[str]:
    """Notes above a table: unprinted values, differences, missing privacy, failed training."""
    remarks: list[str] = []
    table, cells = result.table, result.cells
    if silent := [line.label for line in result.lines if line.line and not line.line.values]:
        printing = any(line.line and line.line.values for line in result.lines)
        where = f"for these lines: {'; '.join(silent)}" if printing else "here"
        text = f" as cells; its text says: {table.said}" if table.said else ""
        remarks.append(f"The paper prints no values {where}{text}.")
    elif table.said:
        remarks.append(f"Beside these values the paper says: {table.said}.")
    printed = [value for line in result.lines if line.line for value in line.line.values.values()]
    if table.tested and any(value.value is not None and value.error is None for value in printed):
        remarks.append(vocabulary.RULES["single_runs"])
    if table.remark:
        remarks.append(table.remark)
    remarks += [words for line in result.lines if (words := _difference(line, result.levels))]
    if cells and not result.private:
        why = "; ".join(dict.fromkeys(cell.guarantee.reason or "no noise" for cell in cells)).rstrip(".")
        remarks.append(f"No privacy is claimed here, and none holds: {why}.")
    if any(map(wording.convergence, cells)):
        remarks.append(wording.convergence_rule(result))
    if any(cell.draws is not None for cell in cells):
        remarks.append(vocabulary.RULES["draws"])
    return remarks


def _difference(line: LineResult, levels: Sequence[str]) -> str | None:
    """Levels at which a line's numbers differ from the paper's, and the reason; None without any."""
    if line.line is None:
        return None
    statuses = {level: value.status for level in levels if (value := line.value(level))}
    sides = [
        f"{side} the paper at {', '.join(wording.level_words(level) for level in at)}"
        for side in ("above", "below")
        if (at := [level for level, status in statuses.items() if status == side])
    ]
    if not sides:
        return None
    return f"{line.label}: ours is {' and '.join(sides)}. {line.line.differs or 'Unexplained.'}"
