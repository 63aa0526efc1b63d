"""What became of each value that a paper prints, by the one rule of `judging.rule`."""

from dataclasses import dataclass
from typing import Literal

from pipeline.reporting.judging.rule import Name
from pipeline.reporting.printed import Line
from pipeline.reporting.results import LineResult, PaperResult, RowResult
from pipeline.reporting.wording import verdict_words

Status = Name | Literal["not judged", "waits for a GPU", "not run", "not counted"]


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


def judge(*results: PaperResult) -> list[Value]:
    """Every value printed in the papers' tables, declared or not; none of an experiment of our own."""
    return [
        _of(
            line,
            result.line(f"{key}/{line.key}{metric}"),
            level,
            "" if metric else line.uncounted.get(level, ""),
        )
        for result in results
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
    if uncounted:
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
