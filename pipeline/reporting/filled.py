"""A paper with the results of its rows."""

from dataclasses import dataclass, replace

from pipeline.reporting.papers import Paper
from pipeline.reporting.results import LineResult, TableResult
from pipeline.results.schema import Record


@dataclass(frozen=True)
class PaperResult:
    """A paper and those of its tables that params.yaml declares rows for."""

    key: str
    paper: Paper
    tables: tuple[TableResult, ...]

    @property
    def records(self) -> list[Record]:
        """The records behind it, in the order shown."""
        return [row.record for table in self.tables for row in table.rows if row.record is not None]

    def line(self, reference: str) -> LineResult | None:
        """The line that a claim refers to, with its rows of all parts; None if its table isn't declared."""
        name, _, metric = reference.partition(":")
        parts = [
            line
            for table in self.tables
            for line in table.lines
            if line.line and f"{table.key}/{line.line.key}" == name
        ]
        rows = (row.measured(metric) if metric else row for line in parts for row in line.rows)
        return replace(parts[0], rows=tuple(rows)) if parts else None
