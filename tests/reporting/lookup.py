"""What tests look up in results."""

from pathlib import Path

from pipeline.reporting.gather import PaperResult
from pipeline.reporting.judging.claim_test import Rows
from pipeline.reporting.report import Report
from pipeline.reporting.results import RowResult, TableResult


def row(table: TableResult, key: str) -> RowResult:
    return next(found for found in table.rows if found.key == key)


def plain(result: PaperResult, *references: str) -> Rows:
    """The first row of each line."""
    found = {reference: result.line(reference) for reference in references}
    return {reference: line.rows[0] if line else None for reference, line in found.items()}


def page_of(written: Report) -> Path:
    """The page of the first of its papers."""
    return next(iter(written.pages.values()))
