"""What became of each value that a paper prints, by the one rule of `judging.rule`, and the counts of it."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from pipeline.reporting.judging.rule import Name
from pipeline.reporting.printed import Line
from pipeline.reporting.results import LineResult, PaperResult, RowResult
from pipeline.reporting.wording import verdict_words

Status = Name | Literal["not judged", "waits for a GPU", "not run", "not counted"]
STRENGTHS = ("accounting", "the paper's settings", "a budget of our own")


@dataclass(frozen=True)
class Value:
    """A printed value and what became of it."""

    status: Status
    words: str  # the verdict, or why there is none
    row: RowResult | None  # that decides it, or that would
    planned: bool = False

    @property
    def decided(self) -> bool:
        """Whether it has a verdict and counts."""
        return self.status in ("agrees", "above", "below")


@dataclass(frozen=True)
class Counts:
    """Printed values by what became of them; printed ones that count nowhere are left out of `total`."""

    values: tuple[Value, ...]
    out_of_scope: int = 0  # numbers printed elsewhere, that aren't tried

    @property
    def printed(self) -> int:
        """Every value."""
        return len(self.values)

    def of(self, *statuses: Status) -> int:
        """How many have one of these statuses."""
        return sum(value.status in statuses for value in self.values)

    @property
    def differ(self) -> int:
        """How many are above or below."""
        return self.of("above", "below")

    @property
    def decided(self) -> int:
        """How many have a verdict."""
        return sum(value.decided for value in self.values)

    @property
    def planned(self) -> int:
        """How many have one by a plan made before the training; accounting needs none."""
        return sum(value.decided and value.planned for value in self.values)

    def by_strength(self, strength: str) -> tuple[int, int]:
        """(agree, differ) of the values whose verdict stands on it."""
        found = [value for value in self.values if value.row and value.row.strength == strength]
        return (
            sum(value.status == "agrees" for value in found),
            sum(value.status in ("above", "below") for value in found),
        )

    def reasons(self, status: Status) -> str:
        """Why values have a status: the reason, or where there are several each with its count."""
        counts = Counter(value.words for value in self.values if value.status == status)
        if len(counts) == 1:
            return next(iter(counts))
        return ", ".join(f"{why}: {count}" for why, count in counts.most_common())

    @property
    def waiting(self) -> list[RowResult]:
        """The rows that values wait for."""
        rows = {
            value.row.key: value.row
            for value in self.values
            if value.status == "waits for a GPU" and value.row
        }
        return list(rows.values())


def counts(results: Iterable[PaperResult]) -> Counts:
    """All values of these papers."""
    results = list(results)
    scope = sum(one.numbers for result in results for one in result.paper.out_of_scope)
    return Counts(tuple(value for result in results for value in judge(result)), scope)


def judge(result: PaperResult) -> list[Value]:
    """Every value printed in the paper's tables, declared or not; none of an experiment of our own."""
    return [
        _of(
            line,
            result.line(f"{key}/{line.key}{metric}"),
            level,
            "" if metric else line.uncounted.get(level, ""),
        )
        for key, table in result.paper.tables.items()
        if not table.own
        for line in table.lines
        for metric, levels in (("", line.values), *((f":{name}", also) for name, also in line.also.items()))
        for level in levels
    ]


def of_line(line: LineResult, level: str) -> Value | None:
    """What became of the value that the line prints at the level; None where it prints none."""
    if line.line is None or level not in line.line.values:
        return None
    return _of(line.line, line, level, line.line.uncounted.get(level, ""))


def _of(line: Line, result: LineResult | None, level: str, uncounted: str) -> Value:
    row = result.deciding(level) if result else None
    cell = row.cells.get(level) if row else None
    if cell is None:
        status, words = _missing(line, result, row, level)
    elif cell.verdict is not None:
        status, words = cell.verdict.name, verdict_words(cell)
    else:
        status, words = "not judged", cell.why
    if uncounted and cell is not None:
        return Value("not counted", f"{words}; not counted: {uncounted}", row)
    return Value(status, words, row, cell.planned if cell else False)


def _missing(line: Line, result: LineResult | None, row: RowResult | None, level: str) -> tuple[Status, str]:
    if row is not None:
        return ("waits for a GPU", "waits for a GPU") if row.waits else ("not run", "still to be trained")
    if line.untried:
        return "not run", line.untried
    if result is None or not result.rows:
        return "not run", "no row is declared"
    ran = any(level in other.cells for other in result.rows)
    return "not run", "only variants of it were run" if ran else "only variants of it are declared"
