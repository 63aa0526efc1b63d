"""What a paper prints and claims: `papers/PAPER.yaml` -> frozen, strict models."""

import re
from collections.abc import Iterator
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationError, model_validator
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from pipeline.errors import UserError
from pipeline.fields import Key, Strict

FOLDER = Path(__file__).parent / "papers"
NO_CONVERGENCE = "No-convergence"  # how a paper prints a cell whose training failed
VARIANT = ", "  # in a row's label, between the paper's label and what the row does differently
_WITH_ERROR = re.compile(r"(?P<value>[\d.]+) ± (?P<error>[\d.]+)")


class Printed(Strict):
    """A cell as printed, in the table's unit: a number, a number with its error, or words."""

    value: float | None = None
    error: float | None = None  # as the paper defines it, e.g. a standard error
    words: str | None = None  # e.g. `NO_CONVERGENCE`
    decimals: int | None = None  # printed, where not as many as the table's

    def rounding(self, decimals: int) -> float:
        """Half a unit of the last digit printed, where the table prints ``decimals``."""
        return 0.5 * 10.0 ** -(decimals if self.decimals is None else self.decimals)


def _printed(raw: Any) -> Any:
    """``98.2``, ``98.20 ± 0.07``, ``No-convergence``, or ``67``, a number without decimals."""
    if isinstance(raw, str):
        match = _WITH_ERROR.fullmatch(raw)
        return {key: float(text) for key, text in match.groupdict().items()} if match else {"words": raw}
    if isinstance(raw, int):
        return {"value": raw, "decimals": 0}
    return {"value": raw} if isinstance(raw, float) else raw


Values = dict[str, Annotated[Printed, BeforeValidator(_printed)]]  # by level


class Line(Strict):
    """A line of a table or a curve of a figure."""

    key: Key  # the name claims use
    label: str
    values: Values = Field(default_factory=dict)
    also: dict[str, Values] = Field(default_factory=dict)  # by further metric of the table


class Table(Strict):
    """A table or figure of the paper."""

    name: str  # 'Table 5'
    title: str
    metric: str = "test_accuracy"  # of the records
    measured: str | None = None  # the metric in words, where its name doesn't tell
    also: dict[str, str] = Field(default_factory=dict)  # further metrics of the records, each in words
    unit: Literal["percent", "number"] = "percent"  # records hold shares, papers print percent
    # of the further metrics, those that say how much noise there is: numbers whatever the unit, and no result
    # of training, so that neither a reduced budget nor failing to converge speaks against them
    noises: tuple[str, ...] = ()
    decimals: int = 2
    axis: str  # what the columns are
    columns: list[str]  # levels in the paper's order
    examples: Annotated[int, Field(ge=1)] | None = None  # N the paper trains on; None: it doesn't say
    # False: the trained network is changed before it is tested, so chance level there is no failed training
    convergence: bool = True
    # The paper gives the step sizes, so that failing to train with them is a finding without any search.
    rates_given: bool = False
    slowdown: str | None = None  # a column: how much longer the other levels take to train than this one
    # further figures: trade-off curves of what ran; expected gradient norms of the layers over the epochs;
    # histograms of examples' gradient norms; pictures of how relevant features are
    figures: tuple[Literal["tradeoff", "layers", "norms", "relevance"], ...] = ()
    lines: tuple[Line, ...] = ()

    @model_validator(mode="after")
    def _values_in_columns(self) -> "Table":
        for line in self.lines:
            levels = {*line.values, *(level for values in line.also.values() for level in values)}
            if unknown := sorted(levels - set(self.columns)):
                raise ValueError(f"lines: {line.key}: not in columns: {', '.join(unknown)}")
            if unknown := sorted(set(line.also) - set(self.also)):
                raise ValueError(f"lines: {line.key}: also: not in the table's 'also': {', '.join(unknown)}")
        if unknown := sorted(set(self.noises) - set(self.also)):
            raise ValueError(f"noises: not in the table's 'also': {', '.join(unknown)}")
        if self.slowdown is not None and self.slowdown not in self.columns:
            raise ValueError(f"slowdown: not in columns: {self.slowdown}")
        return self

    @property
    def prints(self) -> bool:
        """Whether the paper prints any value of it; a figure's can't be read off."""
        return any(line.values for line in self.lines)

    @property
    def gives_errors(self) -> bool:
        """Whether the paper prints a standard error with any value of it."""
        return any(value.error is not None for line in self.lines for value in line.values.values())

    def scale_of(self, metric: str) -> float:
        """Factor from a record's metric to the printed unit."""
        return 100.0 if self.unit == "percent" and metric not in self.noises else 1.0

    def decimals_of(self, metric: str) -> int | None:
        """Decimals that a metric is shown with; None: three significant digits."""
        return None if metric in self.noises else self.decimals

    def line_of(self, label: str) -> tuple[Line | None, str]:
        """The line a row's label belongs to, and what the row does differently ('' if nothing).

        The longest fitting label wins, so a paper's own label may contain a comma.
        """
        for line in sorted(self.lines, key=lambda line: -len(line.label)):
            if label == line.label:
                return line, ""
            if label.startswith(line.label + VARIANT):
                return line, label.removeprefix(line.label + VARIANT)
        return None, ""


class Assumption(Strict):
    """What the paper leaves open, and what is done here."""

    open: str
    choice: str


# TABLE/LINE, or TABLE/LINE:METRIC for a further metric of the table
Reference = Annotated[str, Field(pattern=r"^[a-z0-9-]+/[a-z0-9-]+(:[a-z_]+)?$")]


Levels = Annotated[list[str], Field(min_length=1)]


class Bounded(Strict):
    """A test of a number that must lie between ``above`` and ``below``."""

    above: float | None = None
    below: float | None = None

    @model_validator(mode="after")
    def _bounded(self) -> "Bounded":
        if self.above is None and self.below is None:
            raise ValueError("needs 'above', 'below' or both")
        return self


class OfOneLine(Strict):
    """A test of a single line."""

    of: Reference

    @property
    def references(self) -> tuple[str, ...]:
        """The line looked at."""
        return (self.of,)


class OfTwoLines(Strict):
    """A test of two lines."""

    left: Reference
    right: Reference

    @property
    def references(self) -> tuple[str, ...]:
        """The lines compared."""
        return (self.left, self.right)


class Difference(Bounded):
    """``left - right`` lies between the bounds, in the table's unit, at each level of ``at``."""

    kind: Literal["difference"]
    left: Reference
    right: Reference | float  # another line, or a number such as chance level
    at: Levels
    right_at: str | None = None  # the level of ``right`` when it is one for all, e.g. 'sigma=0'

    @property
    def references(self) -> tuple[str, ...]:
        """The lines compared."""
        return (self.left, self.right) if isinstance(self.right, str) else (self.left,)


class Ratio(OfTwoLines, Bounded):
    """``left / right`` lies between the bounds, at each level of ``at``; of numbers above zero."""

    kind: Literal["ratio"]
    at: Levels
    right_at: str | None = None  # the level of ``right`` when it is one for all


class AtBest(OfTwoLines, Bounded):
    """``left`` at its best level, by validation data, less ``right`` at its own lies between the bounds."""

    kind: Literal["at_best"]


class CarriesOver(OfTwoLines, Bounded):
    """What ``right`` misses of its own best, at the level where ``left`` is best, lies between the bounds."""

    kind: Literal["carries_over"]


class Average(OfTwoLines, Bounded):
    """The mean over the levels of ``at`` of ``left - right`` lies between the bounds, in the table's unit."""

    kind: Literal["average"]
    at: Annotated[list[str], Field(min_length=2)]


class Overtakes(OfTwoLines, Bounded):
    """The epoch in which ``left`` overtakes ``right`` for good lies between the bounds; see `crossings`."""

    kind: Literal["overtakes"]
    at: Levels


class Falls(OfOneLine):
    """The line falls from each level of ``over`` to the next; for a rise, turn `over` around."""

    kind: Literal["falls"]
    over: Annotated[list[str], Field(min_length=2)]

    @property
    def parts(self) -> list[Difference]:
        """It in steps."""
        return [_step(self.of, after, before, below=0) for before, after in pairwise(self.over)]


class Best(OfOneLine):
    """The line is highest at the level ``at``, among it and ``among``."""

    kind: Literal["best"]
    at: str
    among: Levels

    @property
    def parts(self) -> list[Difference]:
        """It against one level after the other."""
        return [_step(self.of, self.at, other, above=0) for other in self.among if other != self.at]


def _step(line: str, level: str, other: str, **bounds: float) -> Difference:
    return Difference(kind="difference", left=line, right=line, at=[level], right_at=other, **bounds)


class Gap(Strict):
    """From ``start`` to each level of ``at``, ``of`` loses less than ``share`` of what ``than`` loses."""

    kind: Literal["gap"]
    of: Reference
    than: Reference
    start: str = Field(alias="from")
    at: Levels
    share: Annotated[float, Field(gt=0)]

    @property
    def references(self) -> tuple[str, ...]:
        """The lines compared."""
        return (self.of, self.than)


class SameGuarantee(OfTwoLines):
    """``left`` and ``right`` are proven the same epsilon, at each level of ``at``."""

    kind: Literal["same_guarantee"]
    at: Levels


class Guaranteed(OfOneLine):
    """The accounted epsilon exists and is no larger than the claimed one, at each level of ``at``."""

    kind: Literal["guarantee"]
    at: Levels


class SpentAtOnce(OfOneLine):
    """A bound is proven, and training longer adds nothing to it, at each level of ``at``."""

    kind: Literal["spent_at_once"]
    at: Levels


class Convergence(OfOneLine):
    """Every seed's training converges, or none does, at each level of ``at``."""

    kind: Literal["convergence"]
    at: Levels
    converges: bool


class Slower(OfOneLine, Bounded):
    """Training at level ``end`` takes so many times as many epochs as at ``start``; see `slowdown.RULE`."""

    kind: Literal["slowdown"]
    start: str = Field(alias="from")
    end: str = Field(alias="to")


Test = (
    Difference
    | Ratio
    | Falls
    | Best
    | AtBest
    | CarriesOver
    | Average
    | Overtakes
    | Gap
    | Guaranteed
    | SameGuarantee
    | SpentAtOnce
    | Convergence
    | Slower
)


class Claim(Strict):
    """A sentence of the paper as tests over records."""

    key: Key
    says: str  # word for word
    where: str
    reading: str | None = None  # what we take it to mean, where that is not plain
    tests: Annotated[list[Annotated[Test, Field(discriminator="kind")]], Field(min_length=1)]


class Paper(Strict):
    """A paper: what it prints, what it leaves open, what it claims."""

    title: str
    authors: tuple[str, ...] = ()
    year: int | None = None
    venue: str | None = None
    link: str | None = None
    tables: dict[Key, Table] = Field(default_factory=dict)
    assumptions: tuple[Assumption, ...] = ()
    claims: tuple[Claim, ...] = ()

    @model_validator(mode="after")
    def _references_exist(self) -> "Paper":
        for claim in self.claims:
            for test in claim.tests:
                for reference in test.references:
                    if reference not in self.lines:
                        raise ValueError(
                            f"claims: {claim.key}: no line {reference!r}; there are: {', '.join(self.lines)}"
                        )
        return self

    @cached_property
    def lines(self) -> dict[str, Line]:
        """Every line by its reference; of a further metric, with the values printed for that."""
        found: dict[str, Line] = {}
        for key, table in self.tables.items():
            for line in table.lines:
                found[f"{key}/{line.key}"] = line
                for metric, words in table.also.items():
                    found[f"{key}/{line.key}:{metric}"] = Line(
                        key=line.key, label=f"{line.label}, {words}", values=line.also.get(metric, {})
                    )
        return found


def names() -> list[str]:
    """The papers there are files for, sorted."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def load(name: str, folder: Path = FOLDER) -> Paper:
    """The paper called ``name``; one without a file is a title and nothing to compare with (one's own rows).

    Raises:
        UserError: the file does not hold a paper; one line a problem.
    """
    path = folder / f"{name}.yaml"
    if not path.exists():
        return Paper(title=name)
    try:
        return Paper.model_validate(YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8")))
    except YAMLError as problem:
        raise UserError(f"{path}: not YAML: {' '.join(str(problem).split())}") from problem
    except ValidationError as problem:
        raise UserError("\n".join(f"{path}: {line}" for line in _problems(problem))) from problem


def _problems(problem: ValidationError) -> Iterator[str]:
    for error in problem.errors():
        yield f"{'.'.join(map(str, error['loc']))}: {error['msg']}"
