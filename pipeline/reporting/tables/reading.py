"""A filled table for reading: for each printed value one cell, what decides first and variants apart."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

import pandas as pd

from pipeline.reporting import wording
from pipeline.reporting.results import Cell, LineResult, RowResult, TableResult, Value

_LATEX = {
    **{"\\": r"\textbackslash{}", "^": r"\textasciicircum{}", "~": r"\textasciitilde{}"},
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    **{"ε": r"$\varepsilon$", "σ": r"$\sigma$", "δ": r"$\delta$", "∞": r"$\infty$"},
    **{"±": r"$\pm$", "−": "$-$", "≤": r"$\le$", "÷": r"$\div$", "Δ": r"$\Delta$"},
}


@dataclass(frozen=True)
class Reading:
    """A line of cells: those by which the paper's line is judged, or a row's that decide nothing."""

    line: LineResult
    rows: tuple[RowResult, ...]  # that the cells are of
    cells: dict[str, Cell]  # by level
    decides: bool

    def value(self, level: str, metric: str = "") -> Value | None:
        """The judged value that is printed there; None of a variant, and where none is printed."""
        return self.line.value(level, metric) if self.decides else None

    def further(self, result: TableResult) -> Iterator[tuple[str, str, dict[str, Cell]]]:
        """(metric, words, cells) of the table's further metrics that its rows have."""
        for metric, words in result.table.also.items():
            by_key = {row.key: row for row in self.rows}
            cells = {
                level: by_key[cell.row].also[metric][level]
                for level, cell in self.cells.items()
                if level in by_key[cell.row].also[metric]
            }
            if cells:
                yield metric, words, cells


def deciding(result: TableResult) -> list[Reading]:
    """Lines of the paper with their deciding cells, printed values or not."""
    readings = []
    for line in result.lines:
        rows = {level: row for level in result.levels if (row := line.deciding(level)) and level in row.cells}
        cells = {level: row.cells[level] for level, row in rows.items()}
        by_key = {row.key: row for row in rows.values()}
        readings.append(Reading(line, tuple(by_key.values()), cells, decides=True))
    return readings


def variants(result: TableResult) -> list[Reading]:
    """Cells of each row that decide nothing, in the order of lines."""
    readings = [
        Reading(line, (row,), cells, decides=False)
        for line in result.lines
        for row in line.rows
        for cells in [{level: cell for level, cell in row.cells.items() if not line.decides(row, level)}]
    ]
    return [reading for reading in readings if reading.cells]


def wide(result: TableResult) -> pd.DataFrame:
    """Printed values, and below them ours with verdict and privacy.

    Columns: 'line', 'source', then one a level; all text.
    """
    return _frame(result, (line for reading in deciding(result) for line in _lines(reading, result)))


def wide_variants(result: TableResult) -> pd.DataFrame:
    """The same of what decides nothing."""
    return _frame(result, (line for reading in variants(result) for line in _ours(reading, result)))


def latex(result: TableResult) -> str:
    """The wide table as a booktabs `tabular`, and a second one of the cells that decide nothing."""
    frames = [frame for frame in (wide(result), wide_variants(result)) if not frame.empty]
    shown = (frame.map(escaped).rename(columns=escaped) for frame in frames)
    tables = "\n".join(frame.to_latex(index=False, escape=False) for frame in shown)
    return f"% needs \\usepackage{{booktabs}}\n{tables}"


def escaped(text: str) -> str:
    """Text of a cell in LaTeX, its bold included."""
    signs = "".join(_LATEX.get(sign, sign) for sign in text)
    return re.sub(r"\*\*(.*?)\*\*", r"\\textbf{\1}", signs)


def _frame(result: TableResult, lines: Iterator[list[str]]) -> pd.DataFrame:
    return pd.DataFrame(lines, columns=["line", "source", *wording.column_heads(result)])


def _lines(reading: Reading, result: TableResult) -> Iterator[list[str]]:
    line = reading.line
    if line.line is not None and line.line.values:
        yield [line.label, "paper", *_printed(line.line.values, result)]
        for metric, printed in line.line.also.items():
            yield [line.label, f"paper, {result.table.also[metric]}", *_printed(printed, result)]
    yield from _ours(reading, result)


def _printed(printed: dict[str, wording.Printed], result: TableResult) -> list[str]:
    decimals = result.table.decimals
    return [wording.printed(printed[level], decimals) if level in printed else "" for level in result.levels]


def _ours(reading: Reading, result: TableResult) -> Iterator[list[str]]:
    label = reading.line.label
    source = "; ".join(wording.row_words(row, result.shared_caveats) for row in reading.rows)
    texts = (_text(reading, level, result) for level in result.levels)
    yield [label, f"ours: {source}" if source else "ours", *texts]
    for metric, words, cells in reading.further(result):
        decimals = result.table.decimals_of(metric)
        shown = {level: _further(cell, reading, metric, decimals) for level, cell in cells.items()}
        yield [label, words, *(shown.get(level, "") for level in result.levels)]


def _further(cell: Cell, reading: Reading, metric: str, decimals: int | None) -> str:
    """A further metric, with the verdict where the paper prints that too."""
    text = wording.cell_text(cell, decimals)
    value = reading.value(cell.level, metric)
    return f"**{text}** {value.words}" if value else text


def _text(reading: Reading, level: str, result: TableResult) -> str:
    """``**97.16 ± 0.09 (n = 5)** agrees, 0.15 above; ε 7 / 6.02 / 3.26``."""
    value, cell = reading.value(level), reading.cells.get(level)
    if cell is None:
        return value.words if value else "" if reading.cells else wording.NOT_RUN
    text = wording.cell_text(cell, result.table.decimals)
    if value is not None:
        text = f"**{text}** {value.words}"
    elif cell.difference is not None:
        text += f", {wording.signed(cell.difference, result.table.decimals)}"
    return f"{text}; {wording.privacy_words(cell)}" if result.private else text
