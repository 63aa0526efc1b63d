"""Contents of pages beyond formats and counts: facts by line, settings, alarms, numbers of verdicts."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from dprepro.pipeline.reporting.facts import Fact, PaperResult
from dprepro.pipeline.reporting.results import Cell, LineResult, RowResult, TableResult
from dprepro.pipeline.reporting.vocabulary import PRIVACY, Word
from dprepro.pipeline.reporting.wording import level_words

Share = tuple[int, Word]  # a part of a bar: number of results with a verdict, and the verdict


class Reading(NamedTuple):
    """Facts of a line: all of its deciding rows, or only those of one row that decide no printed value."""

    line: LineResult
    rows: list[RowResult]  # rows that ran
    facts: dict[str, Fact]  # by level

    def further(self, metric: str) -> dict[str, Cell]:
        """Cells of a further metric by level."""
        also = ((level, fact.row.also[metric]) for level, fact in self.facts.items() if fact.row)
        return {level: cells[level] for level, cells in also if level in cells}


def deciding(result: TableResult) -> list[Reading]:
    """A `Reading` of the deciding rows for each line of a table, also for lines without printed values."""
    readings = []
    for line in result.lines:
        ran = {level: row for level in result.levels if (row := line.deciding(level)) and level in row.cells}
        facts = {level: Fact(result, line, ran.get(level), level) for level in result.levels}
        readings.append(Reading(line, list({row.key: row for row in ran.values()}.values()), facts))
    return readings


def variants(result: TableResult) -> list[Reading]:
    """A `Reading` of the facts that decide no printed value, for each row with such facts, line by line."""
    return [
        Reading(line, [row], facts)
        for line in result.lines
        for row in line.rows
        if (facts := {fact.level: fact for fact in row_facts(row, line, result) if not fact.decides})
    ]


def row_facts(row: RowResult, line: LineResult, result: TableResult) -> list[Fact]:
    """Facts of a row at the levels that ran."""
    return [Fact(result, line, row, level) for level in row.cells]


def row_settings(row: RowResult) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Settings that all levels of a row share, and further settings by level; unset ones are left out."""
    replicas = row.record.replicas if row.record else ()
    by_level = {replica.level: replica.settings for replica in replicas}
    first, *others = list(by_level.values()) or [{}]
    common = {
        name: value
        for name, value in first.items()
        if value is not None and all(level.get(name) == value for level in others)
    }
    special = {}
    for level, settings in by_level.items():
        known = {*common, level.partition("=")[0]}
        if further := {
            name: value for name, value in settings.items() if name not in known and value is not None
        }:
            special[level] = further
    return common, special


def alarms(result: TableResult) -> list[tuple[list[str], tuple[str, str]]]:
    """Cells whose bound is missing, too large or useless, as (rows with levels, (verdict, reason))."""
    levels: dict[tuple[str, str], dict[str, list[str]]] = {}
    for cell in result.cells:
        guarantee = cell.guarantee
        if guarantee.state not in ("holds", "none"):
            alarm = PRIVACY[guarantee.state].text, guarantee.reason or ""
            levels.setdefault(alarm, {}).setdefault(cell.row, []).append(level_words(cell.level))
    return [
        ([f"{row} ({', '.join(at)})" for row, at in rows.items()], alarm) for alarm, rows in levels.items()
    ]


def difference(line: LineResult, levels: Sequence[str]) -> str:
    """Levels at which a line's numbers differ from the paper's, and the reason; '' if none differs."""
    statuses = {level: value.status for level in levels if (value := line.value(level))}
    sides = [
        f"{side} the paper at {', '.join(level_words(level) for level in at)}"
        for side in ("above", "below")
        if (at := [level for level, status in statuses.items() if status == side])
    ]
    why = line.line.differs if line.line else None
    return f"{line.label}: ours is {' and '.join(sides)}. {why or 'Unexplained.'}" if sides else ""


def states(result: PaperResult) -> list[str]:
    """Verdict on the privacy of each cell; variants, and our own experiments on a paper, are left out."""
    tables = [table for table in result.tables if not (result.paper.published and table.table.own)]
    rows = [row for table in tables for row in table.rows if not row.variant]
    return [cell.guarantee.state for row in rows for cell in row.cells.values()]


def shares(keys: Iterable[str], words: Mapping[str, Word]) -> list[Share]:
    """Number and word of each verdict that occurs in ``keys``, in the order of ``words``."""
    numbers = Counter(keys)
    return [(numbers[key], word) for key, word in words.items() if numbers[key]]
