"""What the report is drawn from: cells, rows, lines, tables and papers, filled with our records."""

from dataclasses import dataclass, replace
from math import hypot
from pathlib import Path
from typing import Any, Literal

from pipeline.params import Account, Row
from pipeline.reporting.judging.guarantees import Guarantee
from pipeline.reporting.judging.intervals import Mean
from pipeline.reporting.printed import NO_CONVERGENCE, Line, Printed, Table
from pipeline.results.records import Record, Replica

Agreement = Literal["agrees", "above", "below"]
# In the table's unit, which is points wherever anything is trained. A single seed is taken to be good to
# `ONE_SEED`; an interval wider than `UNTOLD` agrees with too much to tell, and what is further off than that
# differs on a single seed too.
ONE_SEED, UNTOLD = 1.0, 5.0
AGREEMENT_RULE = (
    "A printed value agrees where one more run of ours could have been it (the 95 % prediction interval "
    "over our seeds, or both sides' 95 % errors where the paper prints its own), widened by half a unit of "
    f"the last digit printed; else it differs. An interval wider than {UNTOLD:g} points tells nothing. A "
    f"single seed agrees within {ONE_SEED:g} point, differs beyond {UNTOLD:g}, and tells nothing in between. "
    "Of a computed ε it may be one percent off, as accountants differ in their grids. "
    "'No-convergence' agrees where no seed converged, and differs where all did. Only rows that are the "
    "paper's line as it stands are asked, on a full budget, or on our own where the paper gives none."
)


@dataclass(frozen=True)
class Mark:
    """Something a reader must know before comparing a row with the paper."""

    words: str
    # the row is no reproduction at all: no difference to the paper is shown
    incomparable: bool = False
    # the row's numbers decide nothing: no verdict and no claim rests on them
    inconclusive: bool = False
    training: bool = False  # less of it than the paper's: nothing against how much noise there is
    seeded: bool = False  # the DP noise was: the accuracy stands, the privacy does not
    detail: str = ""  # for whoever wants to know more


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
    only_shorter: bool  # the caveat is less training than the paper's, and there is no other
    untried: str | None  # why training that never converged is no finding
    converged: int  # how many seeds' training did
    draws: float | None  # spread over draws of the noise at test, root mean square over seeds
    rounding: float  # half a unit of the last digit the paper prints, and the table's tolerance

    @property
    def by_seed(self) -> dict[int, float]:
        """Its values by seed."""
        return {replica.seed: value for replica, value in zip(self.replicas, self.values, strict=True)}

    @property
    def agreement(self) -> Agreement | None:
        """Whether ours agrees with the printed value, or lies above or below it; None: it can't be told.

        In words: `AGREEMENT_RULE`.
        """
        if not self.comparable or self.caveat or self.printed is None:
            return None
        if self.printed.words == NO_CONVERGENCE:
            if self.mean.n == 1 or 0 < self.converged < self.mean.n:
                return None
            return "above" if self.converged else "agrees"
        if self.difference is None:
            return None
        away, error = abs(self.difference) - self.rounding, self.printed.error
        side: Agreement = "above" if self.difference > 0 else "below"
        if self.mean.half is None:
            return "agrees" if away <= ONE_SEED else side if away > UNTOLD else None
        if away > (self.mean.further_run if error is None else hypot(self.mean.half, 1.96 * error)):
            return side
        return "agrees" if self.mean.further_run <= UNTOLD else None


@dataclass(frozen=True)
class RowResult:
    """A declared row: its cells by level, none while it has not been run."""

    key: str
    declared: Row | Account
    variant: str  # what it does differently from the paper's line
    record: Record | None
    marks: tuple[Mark, ...]
    cells: dict[str, Cell]
    also: dict[str, dict[str, Cell]]  # by further metric of its table
    history: Path | None  # its training curves, once they are there
    search: dict[str, Any] | None  # that chose its settings
    waits: bool  # it needs a GPU, and was not run
    gpu_hours: float | None  # that its training would take, by counting; None: not counted

    def further(self, table: Table) -> list[tuple[str, str]]:
        """The further metrics of its table that it has, each in words."""
        return [(metric, words) for metric, words in table.also.items() if self.also[metric]]

    def measured(self, metric: str) -> "RowResult":
        """The row by a further metric of its table."""
        return replace(self, cells=self.also[metric])

    @property
    def budget(self) -> str:
        """How much of the paper's training it is declared to have: 'full', 'own' or 'reduced'."""
        return budget_of(self.declared)

    @property
    def counts(self) -> bool:
        """Whether its training is all there is to do; a paper that gives no budget leaves it to us."""
        return self.budget != "reduced"

    @property
    def levels(self) -> list[str]:
        """Those it declares."""
        return [self.declared.level(settings) for settings in self.declared.resolved]

    @property
    def axis(self) -> str:
        """The setting that names its levels."""
        return self.levels[0].partition("=")[0]

    @property
    def examples(self) -> int | None:
        """N of its record; None without one, and where each level has its own."""
        return self.record.provenance.examples if self.record and self.axis != "examples" else None

    @property
    def searched(self) -> str | None:
        """The search that chooses its settings, whether or not it has been run."""
        return self.declared.search if isinstance(self.declared, Row) else None

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
    part: str | None = None  # the setting that names the levels, where the table's rows have several
    converged_above: float | None = None  # percent; see `Paper`

    @property
    def name(self) -> str:
        """File name of what is drawn from it."""
        return f"{self.paper}-{self.key}" + (f"-{self.part}" if self.part else "")

    @property
    def exact(self) -> bool:
        """Whether its numbers were computed, with no training behind them."""
        return bool(self.cells) and all(cell.mean.exact for cell in self.cells)

    @property
    def run(self) -> bool:
        """Whether any row of it was."""
        return any(row.cells for row in self.rows)

    @property
    def rows(self) -> list[RowResult]:
        """Every declared row, in the order shown."""
        return [row for line in self.lines for row in line.rows]

    @property
    def cells(self) -> list[Cell]:
        """Every cell that has a number."""
        return [cell for row in self.rows for cell in row.cells.values()]

    @property
    def private(self) -> bool:
        """Whether any of its cells claims privacy, or has some."""
        return any(cell.guarantee.state != "none" for cell in self.cells)


def budget_of(declared: Row | Account) -> str:
    """What a declared line is to be made on; accounting knows no other than the full one."""
    return declared.budget if isinstance(declared, Row) else "full"
