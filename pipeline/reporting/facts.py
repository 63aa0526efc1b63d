"""Facts: results of rows at their levels, and printed values that wait for a result.

Tables, pages, CSV files and findings read them.
"""

from dataclasses import dataclass, replace
from functools import cached_property

from dprepro.pipeline.reporting.judging import severity, verdicts
from dprepro.pipeline.reporting.judging.assess import ClaimResult, assess
from dprepro.pipeline.reporting.judging.contrasts import PrintedContrast, table_contrasts
from dprepro.pipeline.reporting.judging.severity import NotCovered
from dprepro.pipeline.reporting.judging.values import printed_values
from dprepro.pipeline.reporting.judging.verdicts import Verdict
from dprepro.pipeline.reporting.papers import Paper, short
from dprepro.pipeline.reporting.printed import Printed
from dprepro.pipeline.reporting.results import Cell, LineResult, RowResult, TableResult, Value
from dprepro.pipeline.reporting.vocabulary import PRIVACY
from dprepro.pipeline.results.schema import FINAL_MODEL, FLOATING_POINT, Attack, Record


@dataclass(frozen=True)
class Fact:
    """Result of a row at a level, in its table's metric; if ``row`` is None, only a line's printed value."""

    table: TableResult
    line: LineResult
    row: RowResult | None
    level: str

    @property
    def cell(self) -> Cell | None:
        """Measured numbers; None if the row has not been run at the level."""
        return self.row.cells.get(self.level) if self.row else None

    @cached_property
    def decides(self) -> bool:
        """Return True if this row decides the line's printed value at the level."""
        return self.row is not None and self.line.deciding(self.level) is self.row

    @property
    def printed(self) -> Printed | None:
        """The line's printed cell at the level, in the table's own metric."""
        return self.line.line.values.get(self.level) if self.line.line else None

    @property
    def value(self) -> Value | None:
        """Verdict on the printed value, if this row decides it or there is no row; otherwise None."""
        return self.line.value(self.level) if self.row is None or self.decides else None

    @property
    def privacy(self) -> str:
        """Verdict on the privacy, in words."""
        return PRIVACY[self.cell.guarantee.state].text if self.cell else ""

    @property
    def status(self) -> str:
        """Status of the printed value, in one to three words."""
        return self.value.status if self.value else ""

    @property
    def evidence(self) -> str:
        """Kind of evidence: 'accounting', an `Evidence` or 'planned'; '' if the row has not been run."""
        if self.cell is None:
            return ""
        if self.cell.mean.exact:
            return "accounting"
        if self.value:
            return self.value.evidence
        return "planned" if self.cell.planned else "exploratory"

    @cached_property
    def verdict(self) -> Verdict | None:
        """Verdict on the ledger, and the attack that decided or came closest; None if not run."""
        record = self.row.record if self.row else None
        return verdicts.cell_verdict(self.cell, record) if self.cell and record else None

    @property
    def final_model(self) -> Attack | None:
        """Attack on a final model that was trained for the audit."""
        attacks = self.cell.replicas[0].attacks if self.cell else ()
        return next((attack for attack in attacks if attack.attack == FINAL_MODEL), None)

    @property
    def attacks(self) -> list[Attack]:
        """Attacks on the mechanism, without those on rounding and on the final model."""
        attacks = self.cell.replicas[0].attacks if self.cell else ()
        return [attack for attack in attacks if attack.attack not in (FLOATING_POINT, FINAL_MODEL)]

    @cached_property
    def special_uses(self) -> list[NotCovered]:
        """Uncovered uses of private data that are specific to the row, the worst first."""
        record = self.row.record if self.row else None
        if not self.cell or not record:
            return []
        ledger, attacks = self.cell.guarantee.ledger, self.cell.replicas[0].attacks
        return severity.specific(severity.not_covered(ledger, attacks, record.composition))


@dataclass(frozen=True)
class PaperResult:
    """A paper, and the tables for which params.yaml declares rows, with all results."""

    key: str
    paper: Paper
    tables: tuple[TableResult, ...]

    @property
    def name(self) -> str:
        """Authors and year, or the title."""
        return short(self.paper)

    @property
    def records(self) -> list[Record]:
        """Records of the rows, in the order shown."""
        return [row.record for table in self.tables for row in table.rows if row.record is not None]

    @cached_property
    def lines(self) -> dict[str, LineResult]:
        """Lines of the declared tables by reference, TABLE/LINE and TABLE/LINE:METRIC."""
        lines = {}
        for table in self.tables:
            for line in table.lines:
                if line.line is not None:
                    reference = f"{table.key}/{line.line.key}"
                    lines[reference] = line
                    for metric in table.table.also:
                        rows = tuple(row.measured(metric) for row in line.rows)
                        lines[f"{reference}:{metric}"] = replace(line, rows=rows)
        return lines

    @property
    def facts(self) -> list[Fact]:
        """Facts of each row at each level, in the order shown; a line without rows has facts, too."""
        return [
            Fact(table, line, row, level)
            for table in self.tables
            for line in table.lines
            for row in line.rows or (None,)
            for level in table.levels
        ] + [
            # a printed value for which only variants are declared
            Fact(table, line, None, level)
            for table in self.tables
            for line in table.lines
            for level in table.levels
            if line.rows and (value := line.value(level)) is not None and value.row is None
        ]

    @cached_property
    def values(self) -> list[Value]:
        """Verdicts on all values that the paper's tables print, with declared rows or without."""
        return list(printed_values(self.paper, self.lines))

    @cached_property
    def contrasts(self) -> list[PrintedContrast]:
        """Judged contrasts of the paper's own tables."""
        return [contrast for table in self.tables for contrast in table_contrasts(table)]

    @cached_property
    def claims(self) -> list[ClaimResult]:
        """Results of claims on declared tables; claims without a test come last."""
        return assess(self.paper, self.lines)
