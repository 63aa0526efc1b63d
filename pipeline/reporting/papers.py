"""Schema of a paper's file, `papers/PAPER.yaml` beside params.yaml, and its reading."""

from pathlib import Path
from string import Formatter
from typing import Annotated

from pydantic import Field, ValidationError, model_validator

from dprepro.checking import problem_lines
from dprepro.errors import UserError, reading
from dprepro.fields import Key, Strict
from dprepro.pipeline.params import PAPERS
from dprepro.pipeline.params.documents import read_yaml
from dprepro.pipeline.reporting.claims import Test
from dprepro.pipeline.reporting.judging.claim_test import Bounded
from dprepro.pipeline.reporting.printed import PrintedTables
from dprepro.pipeline.reporting.vocabulary import CLAIMS

QUOTED = ("ours", "paper", "verdict", "proven", "claimed")  # what a finding may quote of a cell


class Assumption(Strict):
    """A choice that the paper leaves open, and our choice."""

    open: str
    choice: str


class UnitTest(Strict):
    """A test of our test suite that decides a claim about a formula or an algorithm, without any record."""

    holds: bool
    by: str  # FILE::NAME


class Claim(Strict):
    """A sentence of the paper, and tests that decide it by records, or a unit test."""

    key: Key
    says: str  # word for word
    where: str
    reading: str | None = None  # our reading, if the sentence is ambiguous
    tests: list[Test] = Field(default_factory=list)
    unit_test: UnitTest | None = None
    untested: str | None = None  # why there is no test

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


class Place(Strict):
    """Cell of a row at one level."""

    row: Key
    at: str  # the level


class OverLevels(Strict):
    """Contrasts of two lines at several levels; ``left`` and ``right`` are TABLE/LINE."""

    left: str
    right: str
    at: Annotated[list[str], Field(min_length=1)]


class Provided(Bounded):
    """Condition of a finding: the 95 % interval of ``left`` minus ``right``, two cells, is in the bounds."""

    left: str
    right: str


class Finding(Strict):
    """A sentence with placeholders for numbers: ``{bn.ours}``, ``{bn.paper}``, ``{ln.differences}``."""

    says: str
    contrasts: dict[str, OverLevels] = Field(default_factory=dict)  # each must be judged at all its levels
    cells: dict[str, Place] = Field(default_factory=dict)  # the report shows the privacy of the first one
    claims: dict[Key, str] = Field(default_factory=dict)  # status that each claim must have
    provided: tuple[Provided, ...] = ()
    table: Key  # the table with the evidence

    @model_validator(mode="after")
    def _names_what_it_quotes(self) -> "Finding":
        for _, name, _, _ in Formatter().parse(self.says):
            cell, _, what = (name or "").partition(".")
            differences = cell in self.contrasts and what == "differences"
            if name is not None and not differences and (cell not in self.cells or what not in QUOTED):
                allowed = [f"{cell}.{what}" for cell in self.cells for what in QUOTED]
                allowed += [f"{name}.differences" for name in self.contrasts]
                raise ValueError(f"says: {{{name}}}; allowed: {', '.join(allowed)}")
        if unknown := set(self.claims.values()) - set(CLAIMS):
            raise ValueError(f"claims: {', '.join(sorted(unknown))}; allowed: {', '.join(CLAIMS)}")
        if not self.cells and not self.claims and not self.contrasts:
            raise ValueError("needs 'cells', 'contrasts' or 'claims' that carry it")
        compared = {name for needs in self.provided for name in (needs.left, needs.right)}
        if unknown := compared - set(self.cells):
            raise ValueError(f"provided: {', '.join(sorted(unknown))}; allowed: {', '.join(self.cells)}")
        return self


class Paper(PrintedTables):
    """A paper: its printed tables, open choices, findings and claims."""

    title: str
    authors: tuple[str, ...] = ()
    year: int | None = None
    venue: str | None = None
    link: str | None = None
    # meanings of the paper's own terms, and of endings of its rows' names
    words: dict[str, str] = Field(default_factory=dict)
    assumptions: tuple[Assumption, ...] = ()
    findings: tuple[Finding, ...] = ()  # the most important first
    claims: tuple[Claim, ...] = ()
    main_claims: tuple[Key, ...] = ()  # claims that the paper is about
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
        keys = [claim.key for claim in self.claims]
        for key in self.main_claims:
            if key not in keys:
                raise ValueError(f"main_claims: no claim {key!r}; there are: {', '.join(keys)}")
        for claim in self.claims:
            for test in claim.tests:
                for reference in test.references:
                    if reference not in self.lines:
                        raise ValueError(
                            f"claims: {claim.key}: no line {reference!r}; there are: {', '.join(self.lines)}"
                        )
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
