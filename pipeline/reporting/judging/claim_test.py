"""Base classes for kinds of claim tests, and functions that make outcomes."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import Field, model_validator

from dprepro.fields import Strict
from dprepro.pipeline.reporting.judging.intervals import Mean
from dprepro.pipeline.reporting.printed import PrintedTables
from dprepro.pipeline.reporting.results import Cell, LineResult, RowResult
from dprepro.pipeline.reporting.wording import level_words, number

# TABLE/LINE, or TABLE/LINE:METRIC for a further metric of the table
Reference = Annotated[str, Field(pattern=r"^[a-z0-9-]+/[a-z0-9-]+(:[a-z0-9_.]+)?$")]
Levels = Annotated[list[str], Field(min_length=1)]
Verdict = Literal["holds", "fails", "undecided", "not run"]


Rows = Mapping[str, LineResult]  # lines by reference; their rows are all reduced, or none is


@dataclass(frozen=True)
class Outcome:
    """Outcome of a comparison at a level."""

    verdict: Verdict
    text: str  # what was compared with what, in numbers
    caveat: str | None = None  # why it does not count: reduced budget, synthetic data, ...


@dataclass(frozen=True)
class PrintedCell:
    """A printed number in place of a cell, taken as exact, for a test on the paper's own numbers."""

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
        """References of the tested lines, from the fields ``of``, ``left`` and ``right`` that exist."""
        named = (getattr(self, field, None) for field in ("of", "left", "right"))
        return tuple(reference for reference in named if isinstance(reference, str))

    def ours(self, rows: Rows, paper: PrintedTables) -> Iterator[Outcome]:
        """Yield the outcomes of the test on our records."""
        raise NotImplementedError

    def on_paper(self, paper: PrintedTables) -> Iterator[Outcome]:
        """Yield the outcomes of the test on the printed numbers, taken as exact; none without numbers."""
        yield from ()


class AtLevels(ClaimTest):
    """Test that judges each level of ``at`` separately, by the results at this level."""

    at: Levels

    def ours(self, rows: Rows, paper: PrintedTables) -> Iterator[Outcome]:
        """Yield one outcome per level; it is 'not run' if a line has not been run at this level."""
        for level in self.at:
            deciding = [rows[reference].deciding(level) for reference in self.references]
            ran = [row for row in deciding if row is not None and level in row.cells]
            title = self.title(level, paper)
            yield self.judge(title, level, ran, paper) if len(ran) == len(deciding) else not_run(title)

    def judge(self, title: str, level: str, rows: Sequence[RowResult], paper: PrintedTables) -> Outcome:
        """Outcome at a level. ``rows`` are the deciding rows, one per line, in the order of `references`."""
        raise NotImplementedError

    def title(self, level: str, paper: PrintedTables) -> str:
        """Title of an outcome: ``LINE at LEVEL``, or ``LINE and LINE at LEVEL``."""
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
        """The bounds plus ``shift``, in words: ``required: above -2 and below 2``."""
        limits = {"above": self.above, "below": self.below}.items()
        return "required: " + " and ".join(
            f"{word} {f'{limit + shift:.6g}' if shift else number(limit)}"
            for word, limit in limits
            if limit is not None
        )


def at_least(verdict: Verdict, text: str, cells: Iterable[Compared]) -> Outcome:
    """Outcome of a test that more training of any cell can only help to pass.

    If the test holds with less training than the paper's, the outcome counts and its text says so.
    """
    # less training comes last: any other caveat excludes the outcome
    flawed = sorted((cell for cell in cells if cell.caveat), key=lambda cell: cell.only_shorter)
    if not flawed:
        return Outcome(verdict, text)
    if verdict == "holds" and flawed[0].only_shorter:
        return Outcome(verdict, f"{text}; holds in spite of less training ({flawed[0].caveat})")
    return Outcome(verdict, text, flawed[0].caveat)


def not_run(title: str) -> Outcome:
    """Outcome of a comparison whose numbers have not all been run."""
    return Outcome("not run", f"{title}: not run")


def guarantee_caveat(*rows: RowResult) -> str | None:
    """First caveat that forbids conclusions from the rows' guarantees on the paper's; None without any.

    Seeded noise, our own choice, is such a caveat. A reduced budget isn't: few steps of a mechanism are
    accounted for in the same way as many.
    """
    caveats = (caveat for row in rows for caveat in row.caveats)
    return next((caveat.words for caveat in caveats if caveat.incomparable or caveat.seeded), None)
