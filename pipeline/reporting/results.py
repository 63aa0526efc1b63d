"""Joins what was declared (params.yaml), what was run (records) and what was printed (the paper's file)."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from math import hypot
from pathlib import Path
from typing import Any, Literal

from pipeline import records
from pipeline.errors import UserError
from pipeline.records import Record, Replica
from pipeline.reporting import papers
from pipeline.reporting.guarantees import Guarantee, guarantee
from pipeline.reporting.intervals import Mean, mean
from pipeline.reporting.papers import Line, Paper, Printed, Table
from pipeline.settings import Row, Settings

OFFICIAL, SYNTHETIC = "official", "synthetic"

Agreement = Literal["agrees", "above", "below"]


@dataclass(frozen=True)
class Mark:
    """Something a reader must know before comparing a row with the paper."""

    words: str
    # the row is no reproduction at all: no difference to the paper is shown
    incomparable: bool = False
    # the row's numbers decide nothing: no verdict and no claim rests on them
    inconclusive: bool = False
    seeded: bool = False  # the DP noise was: the accuracy stands, the privacy does not


@dataclass(frozen=True)
class Cell:
    """What a row reached at one level, in the table's unit."""

    level: str
    values: tuple[float, ...]  # one a seed
    mean: Mean
    printed: Printed | None
    difference: float | None  # ours minus the paper's; None: no number printed, or not comparable
    guarantee: Guarantee
    replicas: tuple[Replica, ...]
    conclusive: bool  # whether the difference may be judged

    @property
    def agreement(self) -> Agreement | None:
        """Where ours lies, when the difference is beyond both sides' errors (95 %); None: can't be told.

        A paper that prints no standard error is taken to print a single run: it agrees where one further run
        of ours could have been it.
        """
        if self.difference is None or self.mean.half is None or self.printed is None or not self.conclusive:
            return None
        error = self.printed.error
        reach = self.mean.further_run if error is None else hypot(self.mean.half, 1.96 * error)
        if abs(self.difference) <= reach:
            return "agrees"
        return "above" if self.difference > 0 else "below"


@dataclass(frozen=True)
class RowResult:
    """A declared row: its cells by level, none while it has not been run."""

    key: str
    row: Row
    variant: str  # what it does differently from the paper's line
    record: Record | None
    marks: tuple[Mark, ...]
    cells: dict[str, Cell]
    history: bool  # whether its training curves are there
    search: dict[str, Any] | None  # that chose its settings

    @property
    def comparable(self) -> bool:
        """Whether its numbers may be subtracted from the paper's."""
        return not any(mark.incomparable for mark in self.marks)


@dataclass(frozen=True)
class LineResult:
    """A line of the paper and the declared rows that belong to it; ``line`` is None for rows of one's own."""

    label: str
    line: Line | None
    rows: tuple[RowResult, ...]


@dataclass(frozen=True)
class TableResult:
    """A table of the paper, filled."""

    paper: str
    key: str
    table: Table
    levels: tuple[str, ...]  # the paper's columns, then further ones that rows have
    lines: tuple[LineResult, ...]

    @property
    def name(self) -> str:
        """File name of what is drawn from it."""
        return f"{self.paper}-{self.key}"

    @property
    def rows(self) -> list[RowResult]:
        """Every declared row, in the order shown."""
        return [row for line in self.lines for row in line.rows]


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
        """The line called TABLE/LINE, or None where its table is not declared."""
        return next(
            (
                line
                for table in self.tables
                for line in table.lines
                if line.line and f"{table.key}/{line.line.key}" == reference
            ),
            None,
        )


def gather(settings: Settings, root: Path = Path()) -> list[PaperResult]:
    """Every paper that params.yaml has rows of, in alphabetical order.

    Rows are taken from params.yaml, never from the folder of records, where removed rows leave theirs behind.

    Raises:
        UserError: a record, search or paper file is not one.
    """
    return [_paper(name, settings, root) for name in sorted({row.paper for row in settings.rows.values()})]


def _paper(name: str, settings: Settings, root: Path) -> PaperResult:
    paper = papers.load(name)
    declared = {row.table for row in settings.rows.values() if row.paper == name}
    # the paper's order first, then tables its file doesn't know
    keys = [key for key in paper.tables if key in declared] + sorted(declared - set(paper.tables))
    return PaperResult(name, paper, tuple(_table(name, key, paper, settings, root) for key in keys))


def _table(name: str, key: str, paper: Paper, settings: Settings, root: Path) -> TableResult:
    table = paper.tables.get(key) or Table(name=key, title="rows of one's own", axis="level", columns=[])
    grouped: dict[str, list[RowResult]] = {line.label: [] for line in table.lines}
    for row_key, row in settings.rows.items():
        if (row.paper, row.table) == (name, key):
            line, variant = table.line_of(row.label)
            label = line.label if line else row.label
            grouped.setdefault(label, []).append(_row(row_key, row, line, variant, table, settings, root))
    known = {line.label: line for line in table.lines}
    lines = tuple(LineResult(label, known.get(label), tuple(rows)) for label, rows in grouped.items())
    levels = dict.fromkeys(
        [*table.columns, *(level for line in lines for row in line.rows for level in row.cells)]
    )
    return TableResult(name, key, table, tuple(levels), lines)


def _row(
    key: str, row: Row, line: Line | None, variant: str, table: Table, settings: Settings, root: Path
) -> RowResult:
    record = records.read(key, root)
    marks = tuple(_marks(row, record, settings.row_digest(key))) if record else tuple(_declared_marks(row))
    cells = dict(_cells(record, line, table, marks)) if record else {}
    history = records.history_path(key, root).exists()
    return RowResult(key, row, variant, record, marks, cells, history, _search(row, root))


def _declared_marks(row: Row) -> Iterator[Mark]:
    if row.budget == "reduced":
        yield Mark("reduced budget", inconclusive=True)


def _marks(row: Row, record: Record, config: str) -> Iterator[Mark]:
    provenance = record.provenance
    yield from _declared_marks(row.model_copy(update={"budget": record.budget}))
    if SYNTHETIC in provenance.edition.values():
        yield Mark("synthetic data", incomparable=True, inconclusive=True)
    for raw, edition in sorted(provenance.edition.items()):
        if edition not in (OFFICIAL, SYNTHETIC):
            yield Mark(f"{raw}: {edition} edition")
    if provenance.reproducible:
        yield Mark("noise seeded: no guarantee", seeded=True)
    if provenance.config != config:
        # shown rather than hidden: the numbers are real, but of other settings than those declared now
        yield Mark("settings have changed since this run", incomparable=True, inconclusive=True)


def _cells(
    record: Record, line: Line | None, table: Table, marks: tuple[Mark, ...]
) -> Iterator[tuple[str, Cell]]:
    comparable = not any(mark.incomparable for mark in marks)
    conclusive = not any(mark.inconclusive for mark in marks)
    for level in dict.fromkeys(replica.level for replica in record.replicas):
        replicas = tuple(
            replica
            for replica in record.replicas
            if replica.level == level and table.metric in replica.metrics
        )
        if not replicas:
            continue
        values = tuple(table.scale * replica.metrics[table.metric] for replica in replicas)
        ours, printed = mean(values), line.values.get(level) if line else None
        known = comparable and printed is not None and printed.value is not None
        yield (
            level,
            Cell(
                level,
                values,
                ours,
                printed,
                ours.value - printed.value if known and printed and printed.value is not None else None,
                guarantee(replicas, record.provenance.reproducible),
                replicas,
                conclusive,
            ),
        )


def _search(row: Row, root: Path) -> dict[str, Any] | None:
    """The search that chose the row's settings, once it has been run."""
    if row.search is None or not (path := records.search_path(row.search, root)).exists():
        return None
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as problem:
        raise UserError(f"{path}: not JSON: {problem}") from problem
    if not isinstance(found, dict):
        raise UserError(f"{path}: not a search")
    return found
