"""Schema of a paper's file, `papers/PAPER.yaml` beside params.yaml, and its reading."""

import re
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationError, model_validator

from dprepro.checking import problem_lines
from dprepro.errors import UserError, reading, shown
from dprepro.fields import Finite, Key, NotNegative, Strict
from dprepro.pipeline.params import PAPERS
from dprepro.pipeline.params.documents import read_yaml

# TABLE/LINE, or TABLE/LINE:METRIC for a further metric of the table
Reference = Annotated[str, Field(pattern=r"^[a-z0-9-]+/[a-z0-9-]+(:[a-z0-9_.]+)?$")]
Levels = Annotated[list[str], Field(min_length=1)]
PREVIOUS = "previous"
NO_CONVERGENCE = "No-convergence"  # how a paper prints a cell whose training failed
# largest margin: percentage points, or a share of a number
WIDEST = {"percent": 2.0, "number": 0.01}
_WITH_ERROR = re.compile(r"(?P<value>-?[\d.]+) ± (?P<error>[\d.]+)")


class Printed(Strict):
    """A cell as printed, in the table's unit: a number, a number with its error, or words."""

    value: Finite | None = None
    error: NotNegative | None = None  # as the paper defines it, e.g. a standard error
    words: str | None = None  # e.g. `NO_CONVERGENCE`
    decimals: int | None = None  # of this value; None: those of the table
    # why our number is higher or lower, with the row that supports it, or 'Unexplained.'
    explanation: Annotated[str, Field(min_length=1)] | None = None

    def rounding(self, decimals: int) -> float:
        """Half a unit of the last printed digit; ``decimals`` is the table's number of decimals."""
        return 0.5 * 10.0 ** -(decimals if self.decimals is None else self.decimals)


def _printed(raw: Any) -> Any:
    """Parse a cell: ``98.2``, ``98.20 ± 0.07``, ``No-convergence``, or ``67`` (without decimals)."""
    if isinstance(raw, str):
        if match := _WITH_ERROR.fullmatch(raw):
            return {key: float(text) for key, text in match.groupdict().items()}
        if re.search(r"\d", raw):  # a mistyped number would never be judged
            raise ValueError(f"{shown(raw)}; allowed: a number, '98.20 ± 0.07', or words without a digit")
        return {"words": raw}
    if isinstance(raw, int) and not isinstance(raw, bool):
        return {"value": raw, "decimals": 0}
    return {"value": raw} if isinstance(raw, float) else raw


Values = dict[str, Annotated[Printed, BeforeValidator(_printed)]]  # by level


class PrintedLine(Strict):
    """A line of a table or a curve of a figure."""

    key: Key  # its name in claims
    label: str
    values: Values = Field(default_factory=dict)
    also: dict[str, Values] = Field(default_factory=dict)  # by further metric of the table
    untried: str | None = None  # why no row is declared for it
    # reasons, by level, why a value doesn't count: it is printed twice, or our number uses it as input
    uncounted: dict[str, str] = Field(default_factory=dict)

    def number(self, level: str) -> float | None:
        """Number printed at a level; None if there is none."""
        printed = self.values.get(level)
        return printed.value if printed else None


class Argued(Strict):
    """Pair of lines whose difference the paper discusses, in every column that prints both lines."""

    left: Key
    right: Key


class Table(Strict):
    """A table or figure of the paper."""

    name: str  # 'Table 5'
    title: str
    metric: str = "test_accuracy"  # its name in the records
    measured: str | None = None  # the metric in words, if its name isn't clear
    also: dict[str, str] = Field(default_factory=dict)  # further metrics of the records, each in words
    unit: Literal["percent", "number"] = "percent"  # records hold shares, papers print percent
    # further metrics that measure noise: numbers, even in a table of percentages. They are no results of
    # training, so a reduced budget or failed training doesn't matter for them.
    noises: tuple[str, ...] = ()
    decimals: int = 2
    # largest distance from a printed value that counts as agreement, fixed before any training: percentage
    # points, or for other numbers a share of the printed number
    margin: Annotated[float, Field(gt=0)] | None = None
    seeds: Annotated[int, Field(ge=1)] = 1  # trainings behind each printed value; 1 if the paper doesn't say
    argues: tuple[Argued, ...] = ()  # pairs of lines whose difference the paper discusses
    axis: str  # meaning of the columns
    columns: list[str]  # levels in the paper's order
    own: bool = False  # our own experiment: nothing in it counts as the paper's
    budget: dict[Literal["epochs", "steps"], float] = Field(default_factory=dict)  # the paper's training
    remark: str | None = None  # what a reader must know about our numbers
    examples: Annotated[int, Field(ge=1)] | None = None  # the paper's N; None: not given
    # False: the trained network is changed before the test, so an accuracy at chance is no failed training
    convergence: bool = True
    lines: tuple[PrintedLine, ...] = ()

    @model_validator(mode="after")
    def _values_in_columns(self) -> "Table":
        for line in self.lines:
            levels = {*line.values, *(level for values in line.also.values() for level in values)}
            for level, printed in line.values.items():
                if self.unit == "percent" and not 0 <= (value := printed.value or 0.0) <= 100:
                    raise ValueError(f"lines: {line.key}: {level}: {value:g} percent; allowed: 0 to 100")
            if unknown := sorted(levels - set(self.columns)):
                raise ValueError(f"lines: {line.key}: not in columns: {', '.join(unknown)}")
            if unknown := sorted(set(line.also) - set(self.also)):
                raise ValueError(f"lines: {line.key}: also: not in the table's 'also': {', '.join(unknown)}")
        if unknown := sorted(set(self.noises) - set(self.also)):
            raise ValueError(f"noises: not in the table's 'also': {', '.join(unknown)}")
        if self.margin is None and not self.own and any(line.values for line in self.lines):
            raise ValueError("margin: a table that prints values needs one")
        if (self.margin or 0.0) > WIDEST[self.unit]:
            raise ValueError(f"margin: {self.margin:g}; allowed: at most {WIDEST[self.unit]:g}")
        keys = {line.key for line in self.lines}
        named = {key for pair in self.argues for key in (pair.left, pair.right)}
        if unknown := sorted(named - keys):
            raise ValueError(f"argues: no line {', '.join(unknown)}; allowed: {', '.join(keys) or 'none'}")
        return self

    @property
    def margin_words(self) -> str:
        """The margin with its unit: '2 points', '1 % of the printed number'; '' without one."""
        if not self.margin:
            return ""
        if self.unit == "percent":
            return f"{self.margin:g} point{'s' if self.margin != 1 else ''}"
        return f"{100 * self.margin:g} % of the printed number"

    def margin_at(self, printed: Printed) -> float:
        """The margin around a printed value, in the table's unit."""
        if self.unit == "percent" or self.margin is None:
            return self.margin or 0.0
        return self.margin * abs(printed.value or 0.0)

    def scale_of(self, metric: str) -> float:
        """Factor from a record's metric to the printed unit."""
        return 100.0 if self.unit == "percent" and metric not in self.noises else 1.0

    def decimals_of(self, metric: str) -> int | None:
        """Number of decimals of a metric in tables; None: three significant digits."""
        return None if metric in self.noises else self.decimals


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


class Paper(Strict):
    """A paper: its printed tables, open choices, headlines and claims."""

    title: str
    tables: dict[Key, Table] = Field(default_factory=dict)
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

    @cached_property
    def lines(self) -> dict[str, PrintedLine]:
        """Lines by reference; each further metric of a table has lines of its own with printed values."""
        by_reference: dict[str, PrintedLine] = {}
        for key, table in self.tables.items():
            for line in table.lines:
                by_reference[f"{key}/{line.key}"] = line
                for metric, words in table.also.items():
                    by_reference[f"{key}/{line.key}:{metric}"] = PrintedLine(
                        key=line.key, label=f"{line.label}, {words}", values=line.also.get(metric, {})
                    )
        return by_reference

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
