"""CSV files: one has a line per row and level with result and ledger, the other a line per contrast."""

from collections.abc import Iterable
from typing import Any

import pandas as pd

from dprepro.pipeline.reporting.facts import Fact
from dprepro.pipeline.reporting.judging.contrasts import PrintedContrast
from dprepro.rounding import rounded_up

Columns = dict[str, Any]


def summary_csv(facts: Iterable[Fact]) -> str:
    """CSV text of the rows' results in their tables' own metrics, one line per row and level."""
    return _text(map(_result, facts))


def contrasts_csv(contrasts: Iterable[PrintedContrast]) -> str:
    """CSV text of contrasts, one per line."""
    return _text(map(_contrast, contrasts))


def judged_numbers(fact: Fact) -> dict[str, float] | None:
    """Rounded numbers of a judged printed value for `dvc metrics show`; None for other facts."""
    if not fact.decides or not (value := fact.value) or not value.judged or not fact.cell or not fact.printed:
        return None
    epsilon = fact.cell.guarantee.ledger.epsilon_upper
    decimals = fact.table.table.decimals
    numbers = {
        "paper": fact.printed.value,
        "ours": round(fact.cell.mean.value, decimals),
        "plus_minus": round(fact.cell.mean.half or 0.0, decimals),
        "epsilon": None if epsilon is None else float(rounded_up(float(f"{epsilon:.9g}"), 3)),
    }
    return {name: number for name, number in numbers.items() if number is not None}


def _text(lines: Iterable[Columns]) -> str:
    # integers stay integers in a column with missing values
    return pd.DataFrame(list(lines)).convert_dtypes().to_csv(index=False, lineterminator="\n")


def _result(fact: Fact) -> Columns:
    """Columns of a row and level that ran; bounds are those of the worst replica."""
    assert fact.row is not None
    assert fact.cell is not None
    table, row, declared, cell, printed = fact.table, fact.row, fact.row.trained, fact.cell, fact.printed
    value = fact.value if fact.decides else None
    judged = value if value and value.verdict else None
    ledger = cell.guarantee.ledger
    return {
        "paper": table.paper,
        "table": table.key,
        "row": row.key,
        "line": fact.line.label,
        "variant": row.variant,
        "level": fact.level,
        "raw": row.raw,
        "data": declared.data if declared else None,
        "method": declared.method if declared else None,
        "metric": table.table.metric,
        "metric_unit": table.table.unit,
        "budget": row.budget if declared else None,
        "seeds": None if cell.mean.exact else cell.mean.n,
        "ours": round(cell.mean.value, 9),
        "half_width_95": cell.mean.half,
        "paper_value": printed.value if printed else None,
        "paper_error": printed.error if printed else None,
        "decides": fact.decides,
        "verdict": value.words if value else None,
        "margin": judged.margin if judged else None,
        "difference_half_width_95": judged.half if judged and judged.away is not None else None,
        "verdict_by_table_margin": (judged.by_table_margin or judged.words) if judged else None,
        "strength": value.strength if value else None,
        "unfair": "; ".join(value.unfair) if value else None,
        "evidence": fact.evidence,
        "claimed": ledger.claimed,
        "proven": ledger.epsilon_upper,
        "shown": cell.shown,
        "delta": ledger.delta,
        "privacy": fact.privacy,
        "why": cell.guarantee.reason,
    }


def _contrast(contrast: PrintedContrast) -> Columns:
    columns: Columns = {"paper": contrast.result.paper, "table": contrast.result.key}
    for name, side in (("left", contrast.left), ("right", contrast.right)):
        columns |= {
            f"{name}_line": side.line.key,
            f"{name}_level": side.level,
            f"{name}_row": side.row.key if side.row else None,
            f"{name}_paper_value": side.printed,
            f"{name}_paper_error": side.error,
        }
    return columns | {
        "paper_difference": round(contrast.theirs, 9),
        "difference": round(contrast.ours.value, 9) if contrast.ours else None,
        "half_width_95": contrast.half if contrast.ours else None,
        "margin": contrast.margin if contrast.ours else None,
        "status": contrast.status,
        "why": contrast.why or None,
        "argued": contrast.argued,
        "planned": contrast.planned if contrast.ours else None,
        "on_part_of_the_data": contrast.fewer_data if contrast.ours else None,
        "unfair_side": contrast.unfair if contrast.ours else None,
    }
