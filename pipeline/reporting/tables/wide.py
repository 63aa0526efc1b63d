"""A filled table with a column a level, all text: what is read, in every format."""

from collections.abc import Iterator

import pandas as pd

from pipeline.reporting import wording
from pipeline.reporting.judging.values import of_line as judge
from pipeline.reporting.results import LineResult, RowResult, TableResult


def wide(result: TableResult) -> pd.DataFrame:
    """What the paper prints and the verdict on it; of each of our rows what it reached, what privacy it buys.

    Further metrics of the table have lines of their own, below.

    Columns: 'line', 'source', then one a level, then 'N', the examples trained on; all text.
    """
    names = [wording.level_value(level) for level in result.levels]
    lines = [
        {"line": line.label, "source": source, **dict(zip(names, cells, strict=True)), "N": examples}
        for line in result.lines
        for source, cells, examples in _sources(line, result)
    ]
    return pd.DataFrame(lines, columns=["line", "source", *names, "N"])


def _sources(line: LineResult, result: TableResult) -> Iterator[tuple[str, list[str], str]]:
    decimals = result.table.decimals
    if line.line is not None and line.line.values:
        values = [line.line.values.get(level) for level in result.levels]
        yield (
            "paper",
            [wording.printed(value, decimals) if value else "" for value in values],
            _count(result.table.examples),
        )
        if not result.table.own:
            judged = [
                judge(line.line, line.rows, level).words if level in line.line.values else ""
                for level in result.levels
            ]
            yield "verdict", judged, ""
        for metric, printed in line.line.also.items():
            values = [printed.get(level) for level in result.levels]
            yield (
                f"paper, {result.table.also[metric]}",
                [wording.printed(value, decimals) if value else "" for value in values],
                "",
            )
    if not line.rows:
        yield "ours", [wording.NOT_RUN for _ in result.levels], ""
    for row in line.rows:
        cells = [row.cells.get(level) for level in result.levels]
        yield (
            row_words(row),
            [wording.cell_text(cell, decimals) if cell else wording.NOT_RUN for cell in cells],
            _count(row.examples),
        )
        if result.private:
            yield "privacy", [wording.guarantee_words(cell.guarantee) if cell else "" for cell in cells], ""
        for metric, words in row.further(result.table):
            cells = [row.also[metric].get(level) for level in result.levels]
            own = result.table.decimals_of(metric)
            yield words, [wording.cell_text(cell, own) if cell else "" for cell in cells], ""


def _count(examples: int | None) -> str:
    return "" if examples is None else f"{examples:,}"


def row_words(row: RowResult) -> str:
    """A row's key, what it does differently, and every mark on it."""
    variant = f", {row.variant}" if row.variant else ""
    marks = "".join(f" [{mark.words}]" for mark in row.marks)
    return f"ours: {row.key}{variant}{marks}"
