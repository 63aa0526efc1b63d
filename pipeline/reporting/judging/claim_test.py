"""Base classes of the kinds of claim tests, and the words of their outcomes."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import Field, model_validator

from pipeline.fields import Strict
from pipeline.reporting.judging.intervals import Mean
from pipeline.reporting.printed import PrintedTables
from pipeline.reporting.results import Cell, LineResult, RowResult
from pipeline.reporting.wording import level_words, number

# TABLE/LINE, or TABLE/LINE:METRIC for a further metric of the table
Reference = Annotated[str, Field(pattern=r"^[a-z0-9-]+/[a-z0-9-]+(:[a-z0-9_.]+)?$")]
Levels = Annotated[list[str], Field(min_length=1)]
Verdict = Literal["holds", "fails", "undecided", "not run"]


Rows = Mapping[str, LineResult]  # by the line's reference; of one kind of budget


@dataclass(frozen=True)
class Outcome:
    """Outcome of a comparison at a level."""

    verdict: Verdict
    text: str  # what was compared with what, in numbers
    caveat: str | None = None  # why it does not count: reduced budget, synthetic data, ...


@dataclass(frozen=True)
class PrintedCell:
    """A number that the paper prints, taken as exact, where a test looks for a cell."""

    row: str
    mean: Mean
    by_seed: Mapping[int, float] = field(default_factory=dict)
    caveat: None = None
    only_shorter: Literal[False] = False


Compared = Cell | PrintedCell


class ClaimTest(Strict):
    """Test of a claim, as the paper's file declares it."""

    @property
    def references(self) -> tuple[str, ...]:
        """The lines looked at: what ``of``, ``left`` and ``right`` of a kind name."""
        named = (getattr(self, field, None) for field in ("of", "left", "right"))
        return tuple(reference for reference in named if isinstance(reference, str))

    def ours(self, rows: Rows, paper: PrintedTables) -> Iterator[Outcome]:
        """The test on our records, at each of its levels."""
        raise NotImplementedError

    def on_paper(self, paper: PrintedTables) -> Iterator[Outcome]:
        """The paper's printed numbers, taken as exact, put to the same test; nothing where it prints none."""
        yield from ()


class AtLevels(ClaimTest):
    """A test of each level of ``at`` by itself, by what ran there."""

    at: Levels

    def ours(self, rows: Rows, paper: PrintedTables) -> Iterator[Outcome]:
        """An outcome a level; not run where a line was not."""
        for level in self.at:
            deciding = [rows[reference].deciding(level) for reference in self.references]
            ran = [row for row in deciding if row is not None and level in row.cells]
            title = self.title(level, paper)
            yield self.judge(title, level, ran, paper) if len(ran) == len(deciding) else not_run(title)

    def judge(self, title: str, level: str, rows: Sequence[RowResult], paper: PrintedTables) -> Outcome:
        """The outcome at a level, of the rows that decide there: one a line, in the order of `references`."""
        raise NotImplementedError

    def title(self, level: str, paper: PrintedTables) -> str:
        """``LINE at LEVEL``, ``LINE and LINE at LEVEL``."""
        labels = " and ".join(paper.lines[reference].label for reference in self.references)
        return f"{labels} at {level_words(level)}"


class Bounded(ClaimTest):
    """A test of a number that must lie between ``above`` and ``below``."""

    above: float | None = None
    below: float | None = None

    @model_validator(mode="after")
    def _bounded(self) -> "Bounded":
        if self.above is None and self.below is None:
            raise ValueError("needs 'above', 'below' or both")
        return self

    def required(self, shift: float = 0.0) -> str:
        """The bounds in words, ``shift`` further: ``required: above -2 and below 2``."""
        limits = {"above": self.above, "below": self.below}.items()
        return "required: " + " and ".join(
            f"{word} {f'{limit + shift:.6g}' if shift else number(limit)}"
            for word, limit in limits
            if limit is not None
        )


def at_least(verdict: Verdict, text: str, cell: Compared) -> Outcome:
    """The outcome of a test that more training can only help to pass.

    A test that holds with less training than the paper's counts; its text says so.
    """
    if verdict == "holds" and cell.only_shorter:
        return Outcome(verdict, f"{text}; holds in spite of less training ({cell.caveat})")
    return Outcome(verdict, text, cell.caveat)


def not_run(title: str) -> Outcome:
    """Outcome of a comparison with a missing side."""
    return Outcome("not run", f"{title}: not run")


def guarantee_caveat(*rows: RowResult) -> str | None:
    """First reason why these rows' guarantees say nothing about the paper's; None without any.

    Seeded noise is this project's choice. A reduced budget is no caveat here: fewer steps of a mechanism are
    accounted for like many.
    """
    caveats = (caveat for row in rows for caveat in row.caveats)
    return next((caveat.words for caveat in caveats if caveat.incomparable or caveat.seeded), None)
