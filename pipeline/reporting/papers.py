"""A paper, as `papers/PAPER.yaml` beside params.yaml declares it."""

from pathlib import Path
from string import Formatter
from typing import Annotated

from pydantic import Field, ValidationError, model_validator
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from pipeline.errors import UserError, reading
from pipeline.fields import Key, Strict
from pipeline.params import PAPERS
from pipeline.params.problems import problem_lines
from pipeline.reporting.claims import Test
from pipeline.reporting.judging.claim_test import Bounded
from pipeline.reporting.printed import PrintedTables
from pipeline.reporting.vocabulary import CLAIMS

QUOTED = ("ours", "paper", "verdict", "proven", "claimed")  # of a cell, in a finding


class Assumption(Strict):
    """Open choice of the paper, and ours."""

    open: str
    choice: str


class Claim(Strict):
    """A sentence of the paper as tests over records."""

    key: Key
    says: str  # word for word
    where: str
    reading: str | None = None  # what we take it to mean, where that is not plain
    tests: list[Test] = Field(default_factory=list)
    untested: str | None = None  # why there is no test

    @model_validator(mode="after")
    def _tested_or_not(self) -> "Claim":
        if bool(self.tests) == bool(self.untested):
            raise ValueError("needs either 'tests' or 'untested', which says why there is none")
        return self


class OutOfScope(Strict):
    """Printed numbers that are not reproduced here."""

    what: str
    numbers: Annotated[int, Field(ge=0)]  # printed in it
    why: str


class Place(Strict):
    """Cell of a row."""

    row: Key
    at: str  # a level of it


class OverLevels(Strict):
    """A contrast of two lines, TABLE/LINE each, at several levels."""

    left: str
    right: str
    at: Annotated[list[str], Field(min_length=1)]


class Provided(Bounded):
    """Condition of a finding: the whole interval of ``left`` less ``right`` lies between the bounds."""

    left: str
    right: str


class Finding(Strict):
    """A sentence with places for numbers: ``{bn.ours}``, ``{bn.paper}``, ``{ln.differences}``."""

    says: str
    contrasts: dict[str, OverLevels] = Field(default_factory=dict)  # each judged at all of its levels
    cells: dict[str, Place] = Field(default_factory=dict)  # the sentence shows the privacy of the first
    claims: dict[Key, str] = Field(default_factory=dict)  # that must have come out so
    provided: tuple[Provided, ...] = ()
    table: Key  # where the evidence stands

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
    """A paper: what it prints, what it leaves open, what it claims."""

    title: str
    authors: tuple[str, ...] = ()
    year: int | None = None
    venue: str | None = None
    link: str | None = None
    # the paper's own terms, and endings of its rows' names
    words: dict[str, str] = Field(default_factory=dict)
    assumptions: tuple[Assumption, ...] = ()
    findings: tuple[Finding, ...] = ()  # the most important first
    claims: tuple[Claim, ...] = ()
    main_claims: tuple[Key, ...] = ()  # those that the paper is about
    out_of_scope: tuple[OutOfScope, ...] = ()
    # in percent: the last validation accuracy above which a training counts as converged; None: evaluation's
    # rule counts
    converged_above: float | None = None

    @property
    def published(self) -> bool:
        """Return True for a paper, False for a laboratory's own rows under a title."""
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
    """The paper called ``name``; one without a file is a title and nothing to compare with (one's own rows).

    Raises:
        UserError: the file can't be read, or does not hold a paper; one line a problem.
    """
    path = folder / f"{name}.yaml"
    if not path.exists():
        return Paper(title=name)
    with reading(path):
        content = path.read_bytes()
    try:
        return Paper.model_validate(YAML(typ="safe", pure=True).load(content.decode()))
    except (YAMLError, UnicodeDecodeError) as problem:
        raise UserError(f"{path}: not YAML: {' '.join(str(problem).split())}") from problem
    except ValidationError as problem:
        raise UserError("\n".join(f"{path}: {line}" for line in problem_lines(problem))) from problem


def short(paper: Paper) -> str:
    """``Davody et al. 2020``; the title of one that has no authors here."""
    if not paper.authors:
        return paper.title
    name = paper.authors[0].split()[-1]
    return f"{name}{' et al.' if len(paper.authors) > 1 else ''}{f' {paper.year}' if paper.year else ''}"
