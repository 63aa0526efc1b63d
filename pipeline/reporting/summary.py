"""Every result in one flat table: a line for each row and level that ran."""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from pipeline.params import Row
from pipeline.reporting import wording
from pipeline.reporting.gather import PaperResult
from pipeline.reporting.results import Cell, LineResult, RowResult, TableResult


def summary(papers: Sequence[PaperResult]) -> pd.DataFrame:
    """One line a result, in the order shown; accuracies in percent."""
    return pd.DataFrame(
        [
            _entry(table, line, row, cell)
            for paper in papers
            for table in paper.tables
            for line in table.lines
            for row in line.rows
            for cell in row.cells.values()
        ]
    ).convert_dtypes()


def csv(table: pd.DataFrame) -> str:
    """The same as text."""
    return table.to_csv(index=False, lineterminator="\n")


def _entry(table: TableResult, line: LineResult, row: RowResult, cell: Cell) -> dict[str, Any]:
    ledger = cell.guarantee.ledger
    declared = row.declared
    trained = isinstance(declared, Row)
    return {
        "paper": table.paper,
        "table": table.name.removeprefix(f"{table.paper}-"),
        "row": row.key,
        "line": line.label + (f", {row.variant}" if row.variant else ""),
        "level": wording.level_words(cell.level),
        "data": declared.data if isinstance(declared, Row) else None,
        "method": declared.method if isinstance(declared, Row) else None,
        "metric": table.table.metric,
        "budget": row.budget if trained else None,
        "seeds": cell.mean.n if trained else None,
        "ours": round(cell.mean.value, 6),
        "half_width_95": None if cell.mean.half is None else round(cell.mean.half, 6),
        "paper_value": cell.printed.value if cell.printed else None,
        "agreement": cell.agreement,
        "claimed": ledger.claimed,
        "proven": ledger.accounted,
        "shown": ledger.shown,
        "delta": ledger.delta,
        "privacy": wording.VERDICTS[cell.guarantee.state].lower(),
        "why": cell.guarantee.reason,
    }
