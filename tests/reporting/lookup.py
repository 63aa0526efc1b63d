"""What tests look up in results."""

from pipeline.reporting.judging import outcomes
from pipeline.reporting.results import PaperResult, RowResult, TableResult


def row(table: TableResult, key: str) -> RowResult:
    return next(found for found in table.rows if found.key == key)


def plain(result: PaperResult, *references: str) -> outcomes.Rows:
    """The first row of each line."""
    found = {reference: result.line(reference) for reference in references}
    return {reference: line.rows[0] if line else None for reference, line in found.items()}
