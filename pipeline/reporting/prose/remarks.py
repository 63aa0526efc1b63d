"""Remarks on a table: missing numbers, missing privacy, and noise that is released once."""

from collections.abc import Sequence

from pipeline.reporting import vocabulary, wording
from pipeline.reporting.results import Cell, LineResult, RowResult, TableResult
from pipeline.reporting.wording import number


def alarms(result: TableResult) -> list[tuple[list[str], tuple[str, str]]]:
    """(rows, (verdict, reason)) of cells whose bound is missing, too large or useless."""

    def alarm(cell: Cell) -> tuple[str, str] | None:
        guarantee = cell.guarantee
        if guarantee.state in ("holds", "none"):
            return None
        return vocabulary.PRIVACY[guarantee.state].text, guarantee.reason or ""

    return result.rows_by(alarm)


def protections(result: TableResult) -> list[tuple[list[str], str]]:
    """(rows, words on the protected people) of the ledgers that name them."""

    def protection(cell: Cell) -> str | None:
        protects = cell.guarantee.ledger.protects
        return vocabulary.words(protects) if protects else None

    return result.rows_by(protection)


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


def releases(result: TableResult) -> list[list[str]]:
    """Row, quantity and the noise at each level, of each quantity that a row releases once."""
    return [
        [row.key, quantity, *(_release(row, level, quantity) for level in result.levels)]
        for row in result.rows
        for quantity in dict.fromkeys(
            released.quantity for cell in row.cells.values() for released in cell.guarantee.ledger.releases
        )
    ]


def _release(row: RowResult, level: str, quantity: str) -> str:
    """``ε 1 → 1.2; noise 0.3; 2 × span``; '' if the level does not release the quantity."""
    found = row.cells[level].guarantee.ledger.releases if level in row.cells else ()
    released = next((released for released in found if released.quantity == quantity), None)
    if released is None:
        return ""
    epsilon_upper = "no bound" if released.epsilon_upper is None else wording.upwards(released.epsilon_upper)
    epsilon = f"ε {number(released.claimed)} → {epsilon_upper}"
    if released.noise[2] == 0:
        return f"{epsilon}; no noise"
    least, median, largest = map(number, released.noise)
    noise = median if least == largest else f"{median} ({least} to {largest})"
    return f"{epsilon}; noise {noise}; {number(released.noise[1] / released.span)} × span"
