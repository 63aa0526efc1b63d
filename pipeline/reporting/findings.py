"""What a paper's rows found, in sentences whose numbers are read from the records.

A sentence stands in the paper's file and names the cells it speaks of, and what must be so for it to be said.
It is said with its seeds, intervals and budget; not where a cell has not been run, or can carry no sentence.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, zip_longest

from pipeline.params import Row
from pipeline.reporting import caveats, wording
from pipeline.reporting.judging.assess import ClaimResult
from pipeline.reporting.judging.contrasts import PrintedContrast
from pipeline.reporting.judging.guarantees import Guarantee
from pipeline.reporting.judging.intervals import contrast
from pipeline.reporting.judging.rule import FEWEST_SEEDS
from pipeline.reporting.papers import Finding
from pipeline.reporting.results import Cell, LineResult, RowResult, TableResult

FIRST = 8  # on the first page at most, so that they stand in the first screen


@dataclass(frozen=True)
class Quote:
    """A cell's numbers as a sentence has them."""

    cell: Cell
    row: RowResult
    line: LineResult
    table: TableResult

    @property
    def ours(self) -> str:
        """``97.65 ± 0.40 % (n = 3)``; what was computed stands alone."""
        text = wording.with_interval(self.cell.mean, self.table.table.decimals)
        return text.replace(" (n", " % (n") if self.table.table.unit == "percent" else text

    @property
    def paper(self) -> str:
        """As printed."""
        printed = self.cell.printed
        return wording.printed(printed, self.table.table.decimals) if printed else "no value"

    @property
    def verdict(self) -> str:
        """On the printed value."""
        value = self.line.value(self.cell.level)
        return value.words if value and value.row is self.row else "a variant, which decides nothing"

    @property
    def proven(self) -> str:
        """The upper bound on epsilon, rounded up."""
        epsilon_upper = self.cell.guarantee.ledger.epsilon_upper
        return "no bound" if epsilon_upper is None else wording.upwards(epsilon_upper)

    @property
    def claimed(self) -> str:
        """The epsilon that the paper's accounting gives."""
        return wording.claim(self.cell.guarantee.ledger)


@dataclass(frozen=True)
class Differences:
    """A contrast at several levels as a sentence has it."""

    contrasts: tuple[PrintedContrast, ...]

    @property
    def differences(self) -> str:
        """``+0.33 ± 0.54 (paper +0.34) at ε = 7, ...``, level by level."""
        return ", ".join(
            f"{wording.signed(each.ours.value, decimals)} ± {wording.fixed(each.half, decimals)} (paper "
            f"{wording.signed(each.theirs, decimals)}) at {wording.level_words(each.left.level)}"
            for each in self.contrasts
            for decimals in [each.result.table.decimals]
            if each.ours
        )


@dataclass(frozen=True)
class Said:
    """A finding with its numbers."""

    text: str
    guarantee: Guarantee | None  # of its first cell; None of one that claims carry
    paper: str  # whose page has the evidence
    table: str  # the section of it


def said(
    findings: Sequence[Finding],
    tables: Sequence[TableResult],
    claims: Sequence[ClaimResult],
    contrasts: Sequence[PrintedContrast],
) -> list[Said]:
    """Those of a paper's findings that its records carry, in its order."""
    statuses = {result.claim.key: result.status for result in claims}
    return [
        _filled(finding, quotes, differences, tables)
        for finding in findings
        for quotes in [_quotes(finding, tables)]
        for differences in [_differences(finding, contrasts)]
        if len(quotes) == len(finding.cells)
        and len(differences) == len(finding.contrasts)
        and all(statuses.get(key) == status for key, status in finding.claims.items())
        and not any(problems(finding, quotes))
    ]


def first(findings: Sequence[Sequence[Said]]) -> list[Said]:
    """Each paper's most important one, then each one's second, as many as fit."""
    in_turn = (said for place in zip_longest(*findings) for said in place if said)
    return list(islice(in_turn, FIRST))


def problems(finding: Finding, quotes: Mapping[str, Quote]) -> Iterator[str]:
    """Why the records can't carry a sentence that they have all cells of."""
    for name, quote in quotes.items():
        if not quote.row.counts:
            yield f"{name}: on a reduced budget"
        if not quote.cell.comparable:
            yield f"{name}: not comparable with the paper"
        if quote.cell.mean.n < FEWEST_SEEDS and not quote.cell.mean.exact:
            yield f"{name}: fewer than {FEWEST_SEEDS} seeds"
    rows = [quote.row for quote in quotes.values() if isinstance(quote.row.declared, Row)]
    if len({row.searched is None for row in rows}) > 1:
        yield "a searched row beside one that was not"
    for needs in finding.provided:
        left, right = quotes[needs.left].cell, quotes[needs.right].cell
        gap = contrast([(1.0, left.row, left), (-1.0, right.row, right)])
        if gap.where(needs.above, needs.below) != "holds":
            yield f"{needs.left} - {needs.right} is not {needs.needs}"


def _quotes(finding: Finding, tables: Sequence[TableResult]) -> dict[str, Quote]:
    rows = {row.key: (row, line, table) for table in tables for line in table.lines for row in line.rows}
    quotes = {}
    for name, place in finding.cells.items():
        if place.row in rows and place.at in rows[place.row][0].cells:
            row, line, table = rows[place.row]
            quotes[name] = Quote(row.cells[place.at], row, line, table)
    return quotes


def _differences(finding: Finding, contrasts: Sequence[PrintedContrast]) -> dict[str, Differences]:
    """The contrasts that were judged at all of their levels."""
    judged = {
        (*(f"{each.result.key}/{side.line.key}" for side in (each.left, each.right)), each.left.level): each
        for each in contrasts
        if each.judged and each.of_lines
    }
    asked = {
        name: [(wanted.left, wanted.right, level) for level in wanted.at]
        for name, wanted in finding.contrasts.items()
    }
    return {
        name: Differences(tuple(judged[place] for place in places))
        for name, places in asked.items()
        if judged.keys() >= set(places)
    }


def _filled(
    finding: Finding,
    quotes: Mapping[str, Quote],
    differences: Mapping[str, Differences],
    tables: Sequence[TableResult],
) -> Said:
    where = next(table for table in tables if table.key == finding.table)
    first = next(iter(quotes.values()), None)
    text = finding.says.format(**quotes, **differences)
    if stands := "; ".join(dict.fromkeys(_stands_on(quote) for quote in quotes.values())):
        text += f" ({stands[0].upper()}{stands[1:]}.)"
    return Said(text, first.cell.guarantee if first else None, where.paper, where.name)


def _stands_on(quote: Quote) -> str:
    """The budget of a cell, and whether it was planned: ``own budget: 8 epochs, exploratory``."""
    declared = quote.row.declared
    if not isinstance(declared, Row):
        return "accounting, nothing trained"
    if quote.row.budget == "own":
        budget = caveats.own_budget(
            [each for each in declared.resolved if declared.level(each) == quote.cell.level]
        )
    else:
        budget = next((caveat.words for caveat in quote.row.caveats if caveat.budget), "")
    stands = "an experiment of our own" if quote.table.table.own else budget or "at the paper's settings"
    return f"{stands}, {'planned' if quote.cell.planned else 'exploratory'}"
