"""What a paper's rows found, in sentences whose numbers are read from the records.

A sentence stands in the paper's file and names the cells it speaks of; where one of them has not been run,
the sentence isn't said. So no number of a finding is typed.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from string import Formatter

from pydantic import model_validator

from pipeline.fields import Key, Strict
from pipeline.reporting import wording
from pipeline.reporting.judging.guarantees import Guarantee
from pipeline.reporting.printed import Table
from pipeline.reporting.results import Cell, TableResult

QUOTED = ("ours", "paper", "proven", "claimed", "seeds")


class Place(Strict):
    """Where a number stands: a row's cell."""

    row: Key
    at: str  # a level of it


class Finding(Strict):
    """A sentence with places for numbers: ``{bn.ours}``, ``{bn.paper}``, ``{bn.proven}``."""

    says: str
    cells: dict[str, Place]  # the first is the one whose privacy is told
    table: Key  # where the evidence stands

    @model_validator(mode="after")
    def _names_what_it_quotes(self) -> "Finding":
        for _, name, _, _ in Formatter().parse(self.says):
            cell, _, what = (name or "").partition(".")
            if name is not None and (cell not in self.cells or what not in QUOTED):
                raise ValueError(
                    f"says: {{{name}}}; allowed: {', '.join(self.cells)}, each with .{', .'.join(QUOTED)}"
                )
        return self


@dataclass(frozen=True)
class Quote:
    """A cell's numbers as a sentence has them."""

    cell: Cell
    table: Table

    @property
    def ours(self) -> str:
        """The mean over seeds."""
        return wording.fixed(self.cell.mean.value, 1 if self.table.unit == "percent" else self.table.decimals)

    @property
    def paper(self) -> str:
        """As printed, without its error."""
        printed = self.cell.printed
        if printed is None:
            return "no value"
        if printed.value is None:
            return printed.words or ""
        return wording.fixed(
            printed.value, self.table.decimals if printed.decimals is None else printed.decimals
        )

    @property
    def proven(self) -> str:
        """The upper bound on epsilon, rounded up."""
        accounted = self.cell.guarantee.ledger.accounted
        return "no bound" if accounted is None else wording.upwards(accounted)

    @property
    def claimed(self) -> str:
        """The epsilon that the paper's accounting gives."""
        return wording.claim(self.cell.guarantee.ledger)

    @property
    def seeds(self) -> str:
        """``3 seeds``."""
        return f"{self.cell.mean.n} seed" + ("s" if self.cell.mean.n > 1 else "")


@dataclass(frozen=True)
class Said:
    """A finding with its numbers."""

    text: str
    guarantee: Guarantee  # of its first cell
    paper: str  # whose page has the evidence
    table: str  # the section of it
    row: str  # of its first cell


def said(findings: tuple[Finding, ...], tables: tuple[TableResult, ...]) -> list[Said]:
    """Those of a paper's findings whose cells have all been run, in its order."""
    rows = {row.key: (row, table) for table in tables for row in table.rows}
    found = []
    for finding in findings:
        quotes: dict[str, Quote] = {}
        for name, place in finding.cells.items():
            row, table = rows.get(place.row, (None, None))
            if row is not None and table is not None and place.at in row.cells:
                quotes[name] = Quote(row.cells[place.at], table.table)
        if len(quotes) == len(finding.cells):
            found.append(_filled(finding, quotes, tables))
    return found


def _filled(finding: Finding, quotes: Mapping[str, Quote], tables: tuple[TableResult, ...]) -> Said:
    first = next(iter(finding.cells))
    where = next(table for table in tables if table.key == finding.table)
    text = finding.says.format(**quotes)
    return Said(text, quotes[first].cell.guarantee, where.paper, where.name, finding.cells[first].row)
