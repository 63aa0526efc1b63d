"""Cells, rows, lines and tables of a paper, filled with the records of this laboratory."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Literal

from dprepro.pipeline.params import Account, Row
from dprepro.pipeline.reporting.judging.guarantees import Guarantee
from dprepro.pipeline.reporting.judging.intervals import Mean
from dprepro.pipeline.reporting.judging.rule import Name, Verdict
from dprepro.pipeline.reporting.printed import Line, Printed, Table
from dprepro.pipeline.results.schema import Record, Replica, SearchRecord

Budget = Literal["full", "own", "reduced"]
Strength = Literal["accounting", "the paper's settings", "a budget of our own"]
# 'blind': planned before any result of the cell was seen. 'after earlier results': planned after exploratory
# results or a first plan's. 'informed': planned after test results that led to the plan.
Evidence = Literal["blind", "after earlier results", "informed", "exploratory"]
Status = Name | Literal["not judged", "waits for a GPU", "not run", "not counted"]


@dataclass(frozen=True)
class Caveat:
    """A fact that a reader must know before comparing a row with the paper."""

    words: str
    # the row is no reproduction: no difference from the paper is shown
    incomparable: bool = False
    # the row's numbers decide no claim, and no printed value unless `fewer_data`
    inconclusive: bool = False
    training: bool = False  # less training than the paper's; doesn't matter for metrics of noise
    # much less data than the paper's: a value may agree, but above and below aren't judged
    fewer_data: bool = False
    budget: bool = False  # the words state the training budget
    examples: bool = False  # the words state N
    seeded: bool = False  # the DP noise was seeded: the accuracy is valid, the guarantee is not


@dataclass(frozen=True)
class Cell:
    """Result of a row at one level in one metric, in the table's unit."""

    row: str  # key of the row
    level: str
    values: tuple[float, ...]  # one per seed
    mean: Mean
    printed: Printed | None
    difference: float | None  # ours minus the paper's; None: no number printed, or not comparable
    guarantee: Guarantee
    replicas: tuple[Replica, ...]
    planned: bool  # all planned seeds were trained under the present plan
    caveat: str | None  # why it decides no claim: a caveat of its row, or `untried`; None: it may decide
    only_shorter: bool  # the only caveat is less training than the paper's
    untried: str | None  # why training that never converged is no finding; None: there is no such reason
    failed: tuple[float, ...]  # values of the seeds whose training did not converge
    draws: float | None  # standard deviation over draws of the test noise: root mean square over seeds

    @property
    def converged(self) -> int:
        """Number of seeds whose training converged."""
        return len(self.values) - len(self.failed)

    @property
    def shown(self) -> float | None:
        """Largest lower bound on epsilon, over seeds; None without a bound."""
        bounds = [replica.shown for replica in self.replicas]
        return max((bound for bound in bounds if bound is not None), default=None)

    @property
    def by_seed(self) -> dict[int, float]:
        """Values by seed."""
        return {replica.seed: value for replica, value in zip(self.replicas, self.values, strict=True)}


def validation(cell: Cell) -> float:
    """Mean validation accuracy of a cell. Levels are chosen by it, never by test data."""
    return fmean(replica.metrics.get("validation_accuracy", 0.0) for replica in cell.replicas)


@dataclass(frozen=True)
class RowResult:
    """A declared row and its results; it has no cells until it has been run."""

    key: str
    declared: Row | Account
    variant: str  # difference from the paper's line; '': none
    record: Record | None
    caveats: tuple[Caveat, ...]
    cells: dict[str, Cell]
    also: dict[str, dict[str, Cell]]  # cells by further metric of the table, and by level
    history: Path | None  # file of its training curves; None: missing
    search: SearchRecord | None  # search that chose its settings; None: not run
    other_searches: tuple[SearchRecord, ...]  # of rows of the same line and variant
    gpu_hours: float | None  # estimated for its training; None: not estimated
    budget: Budget  # its training budget; 'own': the paper gives none
    planned_seeds: int  # per level, by its plan; 0: it has no plan
    raw: str | None  # raw data set of its training; None: accounting only
    start: str | None  # row whose first network is the start of all seeds; None: no such row
    replaced: bool = False  # whether earlier trainings of the row, whose results were seen, were replaced

    def measured(self, metric: str) -> "RowResult":
        """Copy of the row whose cells are those of ``metric``, a further metric of its table."""
        return replace(self, cells=self.also[metric])

    @property
    def trained(self) -> Row | None:
        """Declaration of the row's training; None for accounting only."""
        return self.declared if isinstance(self.declared, Row) else None

    @property
    def repeats(self) -> bool:
        """Return True if the row repeats, with new seeds, undecided values of an earlier plan."""
        return self.trained is not None and self.trained.repeats

    @property
    def waits(self) -> bool:
        """Return True if the row needs a GPU and has not been run."""
        return self.record is None and self.trained is not None and self.trained.needs == "gpu"

    @property
    def counts(self) -> bool:
        """Return True unless the training budget is reduced."""
        return self.budget != "reduced"

    @property
    def strength(self) -> Strength:
        """Kind of evidence that the row gives: accounting, the paper's settings, or a budget of our own."""
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
        """Number of training examples, N; None without a record, or if N differs between levels."""
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
        """Return True if the row's numbers may be compared with the paper's."""
        return not any(caveat.incomparable for caveat in self.caveats)


@dataclass(frozen=True)
class Value:
    """Verdict on a printed value; `judging.values` makes one for each value."""

    status: Status
    words: str  # the verdict, or the reason why there is none
    row: RowResult | None = None  # the row that decides the value, or will decide it once it has run
    level: str = ""
    evidence: Evidence = "exploratory"
    verdict: Verdict | None = None  # by the rule, even if the comparison is unfair; None: no verdict
    margin: float = 0.0  # margin of the verdict, in the table's unit
    by_table_margin: str = ""  # verdict by the table's margin, if a smaller margin changed it
    away: float | None = None  # ours minus the printed value; None: no numbers are compared
    half: float = 0.0  # half the 95 % interval of `away`: seeds, the paper's error, the test set
    # the mean of the paper's other lines would not agree; None: no other line
    informative: bool | None = None
    unfair: tuple[str, ...] = ()  # why the comparison is unfair

    @property
    def equal(self) -> bool:
        """Return True if our interval contains the printed value, or our computed number rounds to it."""
        return self.verdict is not None and self.verdict.name == "agrees" and self.verdict.offset is None

    @property
    def strength(self) -> str:
        """Strength of an agreement, such as ``equal within error, informative``; '' without agreement."""
        if self.status != "agrees":
            return ""
        size = "equal within error" if self.equal else "within the margin"
        informs = {True: ", informative", False: ", not informative", None: ""}[self.informative]
        return size + informs

    @property
    def planned(self) -> bool:
        """Return True if the deciding row was trained under its plan."""
        return self.evidence != "exploratory"

    @property
    def judged(self) -> bool:
        """Return True if the value has a verdict that counts."""
        return self.status in ("agrees", "above", "below", "inconclusive")


Values = Mapping[str, Mapping[str, Value]]  # by metric ('' for the table's own), then by level


@dataclass(frozen=True)
class LineResult:
    """A line of the paper and its declared rows; ``line`` is None if the paper has no such line."""

    label: str
    line: Line | None
    rows: tuple[RowResult, ...]
    variant: str = ""  # variant of the deciding rows; '': rows that don't differ from the line
    values: Values = field(default_factory=dict)  # verdicts on its printed values

    def value(self, level: str, metric: str = "") -> Value | None:
        """Verdict on the line's printed value at a level; None if it prints none."""
        return self.values.get(metric, {}).get(level)

    def deciding(self, *levels: str) -> RowResult | None:
        """Row of the variant that decides values and claims at all of ``levels``; None if no row has them.

        These criteria choose among several rows, the most important first: the row ran at the levels; it is
        planned; it repeats an undecided plan; its budget isn't reduced; it is comparable; it comes first in
        params.yaml. The results play no part.
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

    def cell(self, level: str) -> Cell | None:
        """Cell of the deciding row at a level; None if it has not been run."""
        row = self.deciding(level)
        return row.cells.get(level) if row else None

    @property
    def cells(self) -> list[Cell]:
        """Cells of the deciding rows, one per level."""
        levels = dict.fromkeys(level for row in self.rows for level in row.cells)
        return [cell for level in levels if (cell := self.cell(level))]


@dataclass(frozen=True)
class TableResult:
    """A table of the paper, with the results of its rows."""

    paper: str
    key: str
    table: Table
    levels: tuple[str, ...]  # the paper's columns, and further levels of rows
    lines: tuple[LineResult, ...]
    converged_above: float | None = None  # percent; see `Paper`

    @property
    def name(self) -> str:
        """``PAPER-TABLE``: name of the table's section on the page, and of its figures."""
        return f"{self.paper}-{self.key}"

    @property
    def values(self) -> list[Value]:
        """Verdicts on the table's printed values, in the order shown."""
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
        """Caveats common to all rows that ran, if several ran; the page shows them once, above the table."""
        first, *others = [row.caveats for row in self.rows if row.cells] or [()]
        return tuple(caveat for caveat in first if others and all(caveat in caveats for caveats in others))

    @property
    def cells(self) -> list[Cell]:
        """Cells of all rows."""
        return [cell for row in self.rows for cell in row.cells.values()]

    @property
    def private(self) -> bool:
        """Return True if an epsilon is claimed for any cell."""
        return any(cell.guarantee.state != "none" for cell in self.cells)
