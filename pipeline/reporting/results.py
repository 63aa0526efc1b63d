"""Joins what was declared (params.yaml), what was run (records) and what was printed (the paper's file)."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from math import hypot, sqrt
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

from pipeline import records
from pipeline.errors import UserError
from pipeline.records import Record, Replica
from pipeline.reporting import papers
from pipeline.reporting.guarantees import Guarantee, guarantee
from pipeline.reporting.intervals import Mean, mean
from pipeline.reporting.papers import NO_CONVERGENCE, Line, Paper, Printed, Table
from pipeline.settings import Row, Settings

OFFICIAL, SYNTHETIC = "official", "synthetic"
# A row trained on a smaller share of the paper's examples decides nothing.
ENOUGH_EXAMPLES = 0.9
# That training fails is found only after so many step sizes, the largest so many times the smallest.
STEP_SIZES, SPAN = 3, 100.0

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
    comparable: bool  # with the paper's
    caveat: str | None  # why it decides nothing, if it doesn't: a mark of its row, or `untried`
    untried: str | None  # why training that never converged is no finding
    converged: int  # how many seeds' training did
    draws: float | None  # spread over draws of the noise at test, root mean square over seeds

    @property
    def by_seed(self) -> dict[int, float]:
        """Its values by seed."""
        return {replica.seed: value for replica, value in zip(self.replicas, self.values, strict=True)}

    @property
    def agreement(self) -> Agreement | None:
        """Where ours lies, when the difference is beyond both sides' errors (95 %); None: can't be told.

        A paper that prints no standard error is taken to print a single run: it agrees where one further run
        of ours could have been it. A paper that prints 'No-convergence' agrees when none of our seeds
        converged, and ours lies above it when all did.
        """
        if not self.comparable or self.caveat or self.mean.half is None or self.printed is None:
            return None
        if self.printed.words == NO_CONVERGENCE:
            if 0 < self.converged < self.mean.n:
                return None
            return "above" if self.converged else "agrees"
        if self.difference is None:
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
    history: Path | None  # its training curves, once they are there
    search: dict[str, Any] | None  # that chose its settings

    @property
    def budget(self) -> str:
        """What its numbers were made on, or will be."""
        return self.record.budget if self.record else self.row.budget

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
    levels: tuple[str, ...]  # the paper's columns and further ones that rows have
    lines: tuple[LineResult, ...]

    @property
    def name(self) -> str:
        """File name of what is drawn from it."""
        return f"{self.paper}-{self.key}"

    @property
    def rows(self) -> list[RowResult]:
        """Every declared row, in the order shown."""
        return [row for line in self.lines for row in line.rows]

    @property
    def private(self) -> bool:
        """Whether any of its cells claims privacy, or has some."""
        return any(cell.guarantee.state != "none" for row in self.rows for cell in row.cells.values())


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
    return TableResult(name, key, table, tuple(_levels(table.columns, lines)), lines)


def _levels(columns: list[str], lines: tuple[LineResult, ...]) -> list[str]:
    """The columns and the rows' further levels, which stand where their number belongs."""
    own = (level for line in lines for row in line.rows for level in row.cells)
    levels = list(dict.fromkeys([*columns, *own]))
    for falling in (False, True):
        if len(columns) > 1 and sorted(columns, key=_number, reverse=falling) == columns:
            return sorted(levels, key=_number, reverse=falling)
    return levels


def _number(level: str) -> float:
    try:
        return float(level.partition("=")[2])
    except ValueError:  # a level that is a word comes last where numbers rise
        return float("inf")


def _row(
    key: str, row: Row, line: Line | None, variant: str, table: Table, settings: Settings, root: Path
) -> RowResult:
    record = records.read(key, root)
    search = _search(row, root)
    path = records.history_path(key, root)
    if record is None:
        marks, cells = tuple(_declared_marks(row)), {}
    else:
        marks = tuple(_marks(row, record, settings.row_digest(key), table))
        cells = dict(_cells(record, line, table, marks, search))
    return RowResult(key, row, variant, record, marks, cells, path if path.exists() else None, search)


def _declared_marks(row: Row) -> Iterator[Mark]:
    if row.budget == "reduced":
        yield Mark("reduced budget", inconclusive=True)


def _marks(row: Row, record: Record, config: str, table: Table) -> Iterator[Mark]:
    provenance = record.provenance
    yield from _declared_marks(row.model_copy(update={"budget": record.budget}))
    if SYNTHETIC in provenance.edition.values():
        yield Mark("synthetic data", incomparable=True, inconclusive=True)
    for raw, edition in sorted(provenance.edition.items()):
        if edition not in (OFFICIAL, SYNTHETIC):
            yield Mark(f"{raw}: {edition} edition")
    if table.examples is not None and provenance.examples < table.examples:
        yield Mark(
            f"trained on {provenance.examples:,} of {table.examples:,} examples",
            inconclusive=provenance.examples < ENOUGH_EXAMPLES * table.examples,
        )
    private = any(replica.ledger.noise_multiplier is not None for replica in record.replicas)
    if provenance.reproducible and private:
        yield Mark("noise seeded: no guarantee", seeded=True)
    if provenance.config != config:
        # shown rather than hidden: the numbers are real, but of other settings than those declared now
        yield Mark("settings have changed since this run", incomparable=True, inconclusive=True)


def _cells(
    record: Record, line: Line | None, table: Table, marks: tuple[Mark, ...], search: dict[str, Any] | None
) -> Iterator[tuple[str, Cell]]:
    comparable = not any(mark.incomparable for mark in marks)
    marked = next((mark.words for mark in marks if mark.inconclusive), None)
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
        # records from before convergence was noted count as converged
        converged = sum(
            not table.convergence or replica.metrics.get("converged", 1.0) > 0 for replica in replicas
        )
        untried = None if converged else _untried(search, level)
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
                comparable,
                marked or untried,
                untried,
                converged,
                _draws(replicas, table),
            ),
        )


def _untried(search: dict[str, Any] | None, level: str) -> str | None:
    """Why another step size might have converged at the level; None: enough of them were tried."""
    if search is None:
        return "no convergence, without a search for step sizes"
    rates = {
        candidate["settings"]["learning_rate"]
        for candidate in search.get("candidates", ())
        if candidate.get("level") == level and "learning_rate" in candidate.get("settings", {})
    }
    # a hair less than the span: 0.1 / 0.001 is not 100 in floating point
    if len(rates) >= STEP_SIZES and max(rates) / min(rates) >= SPAN * (1 - 1e-9):
        return None
    tried = ", ".join(f"{rate:g}" for rate in sorted(rates)) or "none"
    return f"no convergence, but too few step sizes searched here: {tried}"


def _draws(replicas: tuple[Replica, ...], table: Table) -> float | None:
    name = f"{table.metric}_draws_std"
    spreads = [table.scale * replica.metrics[name] for replica in replicas if name in replica.metrics]
    return sqrt(fmean(spread**2 for spread in spreads)) if spreads else None


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
