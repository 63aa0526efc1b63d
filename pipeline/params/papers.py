"""Schema of a paper's file, `papers/PAPER.yaml` beside params.yaml, and its reading."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationError, model_validator

from dprepro.checking import problem_lines
from dprepro.errors import UserError, reading
from dprepro.fields import Key, Strict
from dprepro.pipeline.params import PAPERS
from dprepro.pipeline.params.documents import read_yaml
from dprepro.pipeline.params.printed import PrintedTables

# TABLE/LINE, or TABLE/LINE:METRIC for a further metric of the table
Reference = Annotated[str, Field(pattern=r"^[a-z0-9-]+/[a-z0-9-]+(:[a-z0-9_.]+)?$")]
Levels = Annotated[list[str], Field(min_length=1)]
PREVIOUS = "previous"


class Assumption(Strict):
    """A choice that the paper leaves open, and our choice."""

    open: str
    choice: str


class UnitTest(Strict):
    """A test of our test suite that decides a claim about a formula or an algorithm, without any record."""

    holds: bool
    by: str  # FILE::NAME


class Effect(Strict):
    """Part of a claim: ``left`` minus ``right`` is above and below bounds, at each level of ``at``.

    ``right`` is another line or a number. It is taken at ``right_at``: a level, or 'previous' for the level
    before in ``at``. With ``ratio``, the bounds are of ``left`` over ``right``.
    """

    kind: Literal["effect"]
    left: Reference
    right: Reference | float
    at: Levels
    right_at: str | None = None  # None: the level of ``left``
    ratio: bool = False
    above: float | None = None
    below: float | None = None

    @model_validator(mode="after")
    def _bounded(self) -> "Effect":
        if self.above is None and self.below is None:
            raise ValueError("needs 'above', 'below' or both")
        return self

    @property
    def references(self) -> tuple[str, ...]:
        """The compared lines."""
        return (self.left, self.right) if isinstance(self.right, str) else (self.left,)


class Value(Strict):
    """Part of a claim: all trainings of a line converge, or none does, at each level of ``at``."""

    kind: Literal["value"]
    of: Reference
    at: Levels
    converges: bool

    @property
    def references(self) -> tuple[str, ...]:
        """The line."""
        return (self.of,)


class Bound(Strict):
    """Part of a claim: the proven epsilon is at most the claimed one, at each level of ``at``.

    With ``release``, this holds for one quantity that the mechanism releases once. With ``above``, epsilon at
    the level is instead that many times epsilon at ``right_at``, by any analysis.
    """

    kind: Literal["bound"]
    of: Reference
    at: Levels
    release: str | None = None
    right_at: str | None = None
    above: Annotated[float, Field(gt=0)] | None = None

    @model_validator(mode="after")
    def _both(self) -> "Bound":
        if (self.right_at is None) is not (self.above is None):
            raise ValueError("'right_at' goes with 'above'")
        return self

    @property
    def references(self) -> tuple[str, ...]:
        """The line."""
        return (self.of,)


Test = Annotated[Effect | Value | Bound, Field(discriminator="kind")]


class Claim(Strict):
    """A sentence of the paper, and what decides it: effects, values and bounds of records, or a unit test."""

    key: Key
    says: str  # word for word
    where: str
    reading: str | None = None  # our reading, if the sentence is ambiguous
    tests: list[Test] = Field(default_factory=list)
    unit_test: UnitTest | None = None
    untested: str | None = None  # why nothing decides it

    @model_validator(mode="after")
    def _tested_or_not(self) -> "Claim":
        if sum(map(bool, (self.tests, self.unit_test, self.untested))) != 1:
            raise ValueError("needs one of 'tests', 'unit_test' and 'untested' (why there is no test)")
        return self


class OutOfScope(Strict):
    """Printed numbers that are not reproduced here."""

    what: str
    numbers: Annotated[int, Field(ge=0)]  # how many numbers
    why: str


class Headline(Strict):
    """A result that the first page shows: a claim, or a printed value."""

    says: str  # in a few words
    claim: Key | None = None
    of: Reference | None = None  # the line of the value
    at: str | None = None  # its level

    @model_validator(mode="after")
    def _one_of_both(self) -> "Headline":
        if (self.claim is None) is (self.of is None) or (self.of is None) is not (self.at is None):
            raise ValueError("needs 'claim', or 'of' and 'at'")
        return self


class Paper(PrintedTables):
    """A paper: its printed tables, open choices, headlines and claims."""

    title: str
    authors: tuple[str, ...] = ()
    year: int | None = None
    link: str | None = None
    assumptions: tuple[Assumption, ...] = ()
    headlines: tuple[Headline, ...] = ()  # on the first page
    claims: tuple[Claim, ...] = ()
    out_of_scope: tuple[OutOfScope, ...] = ()
    # A training has converged if its last validation accuracy is above this, in percent. None: the rule of
    # `pipeline.training.evaluation` decides.
    converged_above: float | None = None

    @property
    def published(self) -> bool:
        """Return True for a paper, False for a mere title of a laboratory's own rows."""
        return bool(self.authors) or any(not table.own for table in self.tables.values())

    @model_validator(mode="after")
    def _references_exist(self) -> "Paper":
        keys, lines = [claim.key for claim in self.claims], ", ".join(self.lines) or "none"
        for headline in self.headlines:
            if headline.claim is not None and headline.claim not in keys:
                raise ValueError(
                    f"headlines: no claim {headline.claim!r}; there are: {', '.join(keys) or 'none'}"
                )
            if headline.of is not None and headline.of not in self.lines:
                raise ValueError(f"headlines: no line {headline.of!r}; there are: {lines}")
        for claim in self.claims:
            for test in claim.tests:
                for reference in test.references:
                    if reference not in self.lines:
                        raise ValueError(f"claims: {claim.key}: no line {reference!r}; there are: {lines}")
        return self


def load(name: str, folder: Path = PAPERS) -> Paper:
    """Read the paper ``name``. If it has no file (own rows), its title is ``name`` and nothing is printed.

    Raises:
        UserError: the file can't be read or isn't a paper. The message has one line per problem.
    """
    path = folder / f"{name}.yaml"
    if not path.exists():
        return Paper(title=name)
    with reading(path):
        content = read_yaml(path, pure=True)
    try:
        return Paper.model_validate(content)
    except ValidationError as problem:
        raise UserError("\n".join(f"{path}: {line}" for line in problem_lines(problem))) from problem


def short(paper: Paper) -> str:
    """Short name, such as ``Davody et al. 2020``; the title if the file names no authors."""
    if not paper.authors:
        return paper.title
    name = paper.authors[0].split()[-1]
    return f"{name}{' et al.' if len(paper.authors) > 1 else ''}{f' {paper.year}' if paper.year else ''}"
