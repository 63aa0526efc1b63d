"""Cells, rows, lines and tables of a paper, filled with the records of this laboratory."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Literal

from pipeline.params import Account, Row
from pipeline.reporting.judging.guarantees import Guarantee
from pipeline.reporting.judging.intervals import Mean
from pipeline.reporting.judging.rule import Name, Verdict
from pipeline.reporting.printed import Line, Printed, Table
from pipeline.results.schema import Record, Replica, SearchRecord

Budget = Literal["full", "own", "reduced"]
Strength = Literal["accounting", "the paper's settings", "a budget of our own"]
# planned before any result of the cell was seen; after exploratory or first planned ones; after test results
# that changed the plan; without a plan
Evidence = Literal["blind", "after earlier results", "informed", "exploratory"]
Status = Name | Literal["not judged", "waits for a GPU", "not run", "not counted"]


@dataclass(frozen=True)
class Caveat:
    """Something a reader must know before comparing a row with the paper."""

    words: str
    # the row is no reproduction at all: no difference to the paper is shown
    incomparable: bool = False
    # the row's numbers decide nothing: no verdict and no claim rests on them
    inconclusive: bool = False
    training: bool = False  # less of it than the paper's: nothing against how much noise there is
    # less data than the paper's, which can't have helped: only that ours is below decides nothing
    fewer_data: bool = False
    budget: bool = False  # it states the training budget
    examples: bool = False  # it states N
    seeded: bool = False  # the DP noise was: the accuracy stands, the privacy does not


@dataclass(frozen=True)
class Cell:
    """Result of a row at a level by a metric, in the table's unit."""

    row: str  # key
    level: str
    values: tuple[float, ...]  # one a seed
    mean: Mean
    printed: Printed | None
    difference: float | None  # ours minus the paper's; None: no number printed, or not comparable
    guarantee: Guarantee
    replicas: tuple[Replica, ...]
    planned: bool  # trained under the plan that its row names: as many seeds as it says, of the same digest
    comparable: bool  # with the paper's
    caveat: str | None  # why no claim rests on it, if none does: a mark of its row, or `untried`
    only_shorter: bool  # the caveat is less training than the paper's, and there is no other
    untried: str | None  # why training that never converged is no finding
    failed: tuple[float, ...]  # values of the seeds whose training did not converge
    draws: float | None  # spread over draws of the noise at test, root mean square over seeds

    @property
    def converged(self) -> int:
        """Number of seeds whose training converged."""
        return len(self.values) - len(self.failed)

    @property
    def by_seed(self) -> dict[int, float]:
        """Values by seed."""
        return {replica.seed: value for replica, value in zip(self.replicas, self.values, strict=True)}


def validation(cell: Cell) -> float:
    """The mean validation accuracy of a cell, by which levels are chosen; test data choose nothing."""
    return fmean(replica.metrics.get("validation_accuracy", 0.0) for replica in cell.replicas)


@dataclass(frozen=True)
class RowResult:
    """A declared row: its cells by level, none while it has not been run."""

    key: str
    declared: Row | Account
    variant: str  # what it does differently from the paper's line
    record: Record | None
    caveats: tuple[Caveat, ...]
    cells: dict[str, Cell]
    also: dict[str, dict[str, Cell]]  # by further metric of its table
    history: Path | None  # its training curves, once they are there
    search: SearchRecord | None  # that chose its settings; None until it was run
    other_searches: tuple[SearchRecord, ...]  # of rows of the same line and variant
    gpu_hours: float | None  # that its training would take, by counting; None: not counted
    budget: Budget  # how much of the paper's training it has; 'own': the paper gives none
    planned_seeds: int  # of each level, by its plan; 0: it has no plan
    raw: str | None  # the raw data set it is trained on; None: an accounting
    start: str | None  # the row whose first network all its seeds start from; None: they start afresh

    def measured(self, metric: str) -> "RowResult":
        """The row by a further metric of its table."""
        return replace(self, cells=self.also[metric])

    @property
    def trained(self) -> Row | None:
        """Declaration of a training; None of an accounting."""
        return self.declared if isinstance(self.declared, Row) else None

    @property
    def repeats(self) -> bool:
        """Return True for a repetition, with new seeds, of an undecided plan."""
        return self.trained is not None and self.trained.repeats

    @property
    def waits(self) -> bool:
        """Return True if it needs a GPU and has not been run."""
        return self.record is None and self.trained is not None and self.trained.needs == "gpu"

    @property
    def counts(self) -> bool:
        """Return True unless the training budget is reduced."""
        return self.budget != "reduced"

    @property
    def strength(self) -> Strength:
        """Ground of a verdict on the row."""
        if not self.trained:
            return "accounting"
        as_printed = self.budget == "full" and not any(caveat.fewer_data for caveat in self.caveats)
        return "the paper's settings" if as_printed else "a budget of our own"

    @property
    def levels(self) -> list[str]:
        """Names of the declared levels."""
        return [self.declared.level(settings) for settings in self.declared.resolved]

    @property
    def examples(self) -> int | None:
        """N of its record; None without one, and where each level has its own."""
        return (
            None
            if not self.record or self.levels[0].startswith("examples=")
            else self.record.provenance.examples
        )

    @property
    def searched(self) -> str | None:
        """Name of the search that chooses the row's settings; it may not have run yet."""
        return self.trained.search if self.trained else None

    @property
    def comparable(self) -> bool:
        """Return True if its numbers are comparable with the paper's."""
        return not any(caveat.incomparable for caveat in self.caveats)


@dataclass(frozen=True)
class Value:
    """A printed value and its verdict; `judging.values` makes them, once for each."""

    status: Status
    words: str  # the verdict, or the reason why there is none
    row: RowResult | None = None  # that decides it, or that would
    level: str = ""
    evidence: Evidence = "exploratory"
    verdict: Verdict | None = None  # by the rule, fair or not; None: nothing to judge it by
    margin: float = 0.0  # that decided, in the table's unit
    by_table_margin: str = ""  # the verdict by the table's margin, where a close column's is smaller
    away: float | None = None  # ours less the printed value; None: no number is compared
    half: float = 0.0  # half the 95 % interval of `away`: seeds, the paper's error, the test set
    informative: bool | None = (
        None  # the mean of the paper's other lines would not agree; None: no other line
    )
    unfair: tuple[str, ...] = ()  # why a verdict at a budget of our own is not fair

    @property
    def equal(self) -> bool:
        """Return True if the interval contains the printed value, or a computed number rounds to it."""
        return self.verdict is not None and self.verdict.name == "agrees" and self.verdict.offset is None

    @property
    def strength(self) -> str:
        """``equal within error, informative``: strength of an agreement; '' without one."""
        if self.status != "agrees":
            return ""
        size = "equal within error" if self.equal else "within the margin"
        informs = {True: ", informative", False: ", not informative", None: ""}[self.informative]
        return size + informs

    @property
    def planned(self) -> bool:
        """Return True if the deciding row was trained by a plan."""
        return self.evidence != "exploratory"

    @property
    def judged(self) -> bool:
        """Return True if it has a verdict and counts."""
        return self.status in ("agrees", "above", "below", "inconclusive")


Values = Mapping[str, Mapping[str, Value]]  # by metric, '' the table's own, and by level


@dataclass(frozen=True)
class LineResult:
    """A line of the paper and the declared rows that belong to it; ``line`` is None for rows of one's own."""

    label: str
    line: Line | None
    rows: tuple[RowResult, ...]
    variant: str = ""  # of those that decide; '': the rows that do nothing differently
    values: Values = field(default_factory=dict)  # that the paper prints, judged

    def value(self, level: str, metric: str = "") -> Value | None:
        """The judged value that the line prints at a level; None where it prints none."""
        return self.values.get(metric, {}).get(level)

    def deciding(self, *levels: str) -> RowResult | None:
        """The row by which values and claims are judged at all of ``levels``; None where none is declared.

        Of the variant's rows the first that ran there, before one that didn't; planned ones before others,
        and of these the one that repeats, with new seeds, what the first plan left undecided; full budgets
        before reduced ones, comparable rows before others. What came out plays no part.
        """

        def order(row: RowResult) -> tuple[bool, ...]:
            cells = [row.cells.get(level) for level in levels]
            planned = all(cell is not None and cell.planned for cell in cells)
            return (
                None in cells,
                not planned,
                not (planned and row.repeats),
                not row.counts,
                not row.comparable,
            )

        rows = [row for row in self.rows if row.variant == self.variant]
        there = (row for row in rows if {*levels} <= {*row.levels, *row.cells})
        return min(there, key=order, default=None)

    def has(self, variant: str) -> bool:
        """Return True if a row has that variant."""
        return any(row.variant == variant for row in self.rows)

    def cell(self, level: str) -> Cell | None:
        """Cell of the deciding row; None if it has not been run."""
        row = self.deciding(level)
        return row.cells.get(level) if row else None

    @property
    def cells(self) -> list[Cell]:
        """Deciding cells, one per level."""
        levels = dict.fromkeys(level for row in self.rows for level in row.cells)
        return [cell for level in levels if (cell := self.cell(level))]

    def decides(self, row: RowResult, level: str) -> bool:
        """Return True if the level is judged by the row."""
        return self.deciding(level) is row


@dataclass(frozen=True)
class TableResult:
    """A table of the paper, filled."""

    paper: str
    key: str
    table: Table
    levels: tuple[str, ...]  # the paper's columns and further ones that rows have
    lines: tuple[LineResult, ...]
    converged_above: float | None = None  # percent; see `Paper`

    @property
    def name(self) -> str:
        """Name of its section of a page, and of what is drawn from it."""
        return f"{self.paper}-{self.key}"

    @property
    def values(self) -> list[Value]:
        """Judged printed values, in the order shown."""
        by_metric = (by_level for line in self.lines for by_level in line.values.values())
        return [value for by_level in by_metric for value in by_level.values()]

    @property
    def exact(self) -> bool:
        """Return True if all numbers were computed, without training."""
        return bool(self.cells) and all(cell.mean.exact for cell in self.cells)

    @property
    def run(self) -> bool:
        """Return True if any row has been run."""
        return any(row.cells for row in self.rows)

    @property
    def rows(self) -> list[RowResult]:
        """Declared rows, in the order shown."""
        return [row for line in self.lines for row in line.rows]

    @cached_property
    def shared_caveats(self) -> tuple[Caveat, ...]:
        """Caveats that all rows that ran share, if there are several; they stand once, above the table."""
        first, *others = [row.caveats for row in self.rows if row.cells] or [()]
        return tuple(caveat for caveat in first if others and all(caveat in caveats for caveats in others))

    @property
    def cells(self) -> list[Cell]:
        """Cells of all rows."""
        return [cell for row in self.rows for cell in row.cells.values()]

    @property
    def private(self) -> bool:
        """Return True if any cell claims or has privacy."""
        return any(cell.guarantee.state != "none" for cell in self.cells)
