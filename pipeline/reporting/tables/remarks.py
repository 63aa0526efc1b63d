"""What a reader must know beside a table: which privacy doesn't hold and why, what is missing."""

from collections.abc import Sequence

from pipeline.reporting import vocabulary, wording
from pipeline.reporting.printed import Printed
from pipeline.reporting.results import Cell, LineResult, TableResult


def reasons(result: TableResult) -> list[tuple[list[str], tuple[str, str]]]:
    """(rows, (verdict, reason)) wherever a bound is missing, too large or none; alike rows together."""

    def told(cell: Cell) -> tuple[str, str] | None:
        guarantee = cell.guarantee
        if guarantee.state in ("holds", "none"):
            return None
        return vocabulary.PRIVACY[guarantee.state].text, guarantee.reason or ""

    return result.alike(told)


def notes(result: TableResult) -> list[str]:
    """What a reader must know beside the table: missing numbers, missing privacy, missing convergence."""
    remarks: list[str] = []
    cells = result.cells
    if silent := [line.label for line in result.lines if line.line and not line.line.values]:
        printing = any(line.line and line.line.values for line in result.lines)
        which = f"for these lines: {'; '.join(silent)}" if printing else "here"
        said = f" as cells; its text says: {result.table.said}" if result.table.said else ""
        remarks.append(f"The paper prints no values {which}{said}.")
    elif result.table.said:
        remarks.append(f"Beside these values the paper says: {result.table.said}.")
    printed = [value for line in result.lines if line.line for value in line.line.values.values()]
    if result.table.tested and any(map(_single, printed)):
        remarks.append(
            "The paper prints no error with some of these values, as of a single run: the margin alone "
            "covers how far its own runs may lie apart."
        )
    if result.table.remark:
        remarks.append(result.table.remark)
    remarks += [words for line in result.lines if (words := differing(line, result.levels))]
    if cells and not result.private:
        why = "; ".join(dict.fromkeys(cell.guarantee.reason or "no noise" for cell in cells)).rstrip(".")
        remarks.append(f"No privacy is claimed here, and none holds: {why}.")
    if any(map(wording.convergence, cells)):
        remarks.append(wording.convergence_rule(result))
    if any(cell.draws is not None for cell in cells):
        remarks.append(
            "A seed's accuracy is the mean over draws of the noise at test; the standard deviation over them "
            "is in the CSV, and on the page where one hovers over the number of seeds."
        )
    return remarks


def _single(printed: Printed) -> bool:
    """Whether a number is printed without an error."""
    return printed.value is not None and printed.error is None


def differing(line: LineResult, levels: Sequence[str]) -> str | None:
    """Where a line's numbers differ from the paper's, and why; None where none does."""
    if line.line is None:
        return None
    judged = {level: line.value(level) for level in levels}
    statuses = {level: value.status for level, value in judged.items() if value}
    sides = [
        f"{side} the paper at {', '.join(wording.level_words(level) for level in at)}"
        for side in ("above", "below")
        if (at := [level for level, status in statuses.items() if status == side])
    ]
    if not sides:
        return None
    why = line.line.differs or "Unexplained."
    return f"{line.label}: ours is {' and '.join(sides)}. {why}"
