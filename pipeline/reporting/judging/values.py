"""The verdict on each value that a paper prints, by one rule: `results.AGREEMENT_RULE`."""

from collections import Counter
from dataclasses import dataclass
from typing import Literal

from pipeline.reporting.gather import PaperResult
from pipeline.reporting.printed import Line
from pipeline.reporting.results import Cell, RowResult

Verdict = Literal["agrees", "above", "below", "not judged", "waits for a GPU", "not run"]


@dataclass(frozen=True)
class Value:
    """A printed value and what became of it."""

    verdict: Verdict
    why: str  # it has no verdict; nothing where it has one
    row: RowResult | None  # that decides it, or that would

    @property
    def words(self) -> str:
        """The verdict, or why there is none."""
        return self.why or self.verdict


@dataclass(frozen=True)
class Summary:
    """All values of a paper, counted."""

    total: int
    agree: int
    differ: int
    not_judged: Counter[str]  # by why
    waiting: int  # for a GPU
    gpu_hours: float  # that the waiting rows would take
    uncounted: int  # waiting rows whose hours nobody counted
    not_run: Counter[str]  # by why
    out_of_scope: int  # numbers printed elsewhere, that aren't tried


def judge(result: PaperResult) -> list[Value]:
    """Every value printed in the paper's tables, declared or not; none of an experiment of our own."""
    return [
        of_line(line, _rows(result, f"{key}/{line.key}{metric}"), level)
        for key, table in result.paper.tables.items()
        if not table.own
        for line in table.lines
        for metric, levels in (("", line.values), *((f":{name}", also) for name, also in line.also.items()))
        for level in levels
    ]


def _rows(result: PaperResult, reference: str) -> tuple[RowResult, ...]:
    line = result.line(reference)
    return line.rows if line else ()


def summary(result: PaperResult) -> Summary:
    """How many of the values have which verdict."""
    values = judge(result)
    counts = Counter(value.verdict for value in values)
    waiting = {
        value.row.key: value.row for value in values if value.verdict == "waits for a GPU" and value.row
    }
    counted = [row.gpu_hours for row in waiting.values() if row.gpu_hours is not None]
    return Summary(
        total=len(values),
        agree=counts["agrees"],
        differ=counts["above"] + counts["below"],
        not_judged=Counter(value.why for value in values if value.verdict == "not judged"),
        waiting=counts["waits for a GPU"],
        gpu_hours=sum(counted),
        uncounted=len(waiting) - len(counted),
        not_run=Counter(value.why for value in values if value.verdict == "not run"),
        out_of_scope=sum(one.numbers for one in result.paper.out_of_scope),
    )


def of_line(line: Line, rows: tuple[RowResult, ...], level: str) -> Value:
    """By the first row that is the line as it stands and tells; else why none does."""
    plain = sorted((row for row in rows if not row.variant), key=lambda row: not row.counts)
    cells = [(row, row.cells[level]) for row in plain if level in row.cells]
    for row, cell in cells:
        if cell.agreement:
            return Value(cell.agreement, "", row)
    for row, cell in cells:
        return Value("not judged", _untold(cell, row), row)
    for row in plain:
        if row.waits and level in row.levels:
            return Value("waits for a GPU", "waits for a GPU", row)
    return Value("not run", line.untried or _missing(rows, plain, level), None)


def _untold(cell: Cell, row: RowResult) -> str:
    if not cell.comparable:
        return next(mark.words for mark in row.marks if mark.incomparable)
    if cell.caveat and not row.counts:
        # no training here would help
        lacking = any(mark.inconclusive and not mark.training for mark in row.marks)
        return "too small a part of the data" if lacking else "too small a budget"
    if cell.caveat:
        return "fewer examples, or too few step sizes tried"
    return "one seed" if cell.mean.n == 1 else "too wide an interval, or only some seeds converged"


def _missing(rows: tuple[RowResult, ...], plain: list[RowResult], level: str) -> str:
    if any(level in row.levels for row in plain):
        return "still to be trained"
    if any(level in row.cells for row in rows):
        return "run with a change alone"
    return "declared with a change alone" if rows else "no row is declared"


def reasons(counts: Counter[str]) -> str:
    """``too small a budget``, or where there are several each with its count, the most frequent first."""
    if len(counts) == 1:
        return next(iter(counts))
    return ", ".join(f"{why}: {count}" for why, count in counts.most_common())
