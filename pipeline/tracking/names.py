"""What runs are called, and how settings are written so that a person's filter finds them."""

import json
import re
from collections.abc import Mapping
from typing import Any

from pipeline.params import Settings
from pipeline.reporting import wording
from pipeline.results.schema import Record


def run_name(record: Record, place: str, settings: Settings, level: str | None, seed: int | None) -> str:
    """``LN-LeNet-5, ε = 3, seed 0 (Table 5, reduced)``, which no other run of the paper has.

    Without a level it is a row's, without a seed that of a mean. The row's key is added where another row has
    the same label, table and budget. ``place``: the table's name.
    """
    parts = [record.label]
    if level is not None:
        parts.append(wording.level_words(level))
    if seed is not None:
        parts.append(f"seed {seed}")
    where = [place, "reduced"] if record.budget == "reduced" else [place]
    wanted = (record.paper, record.table, record.label, record.budget)
    same = {
        key
        for key, line in settings.lines.items()
        if (line.paper, line.table, line.label, getattr(line, "budget", "full")) == wanted
    }
    if same - {record.row}:
        where.append(record.row)
    return f"{', '.join(parts)} ({', '.join(where)})"


def metric_name(name: str) -> str:
    """``name`` without signs that MLflow refuses."""
    return re.sub(r"[^\w\-./: ]", " ", name)


def canonical(value: Any) -> str:
    """A setting as one would type it: ``3`` for 3.0, ``1e-5``, ``inf``, ``true``, ``none``."""
    if isinstance(value, str):  # records are JSON, and have infinity as a text
        return {"Infinity": "inf", "-Infinity": "-inf"}.get(value, value)
    if isinstance(value, float):
        return re.sub(r"e([+-])0*", lambda sign: f"e{sign[1].strip('+')}", repr(value).removesuffix(".0"))
    return "none" if value is None else json.dumps(value)


def flat(value: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings in one level, ``{'a': {'b': 1}}`` as ``{'a.b': 1}``."""
    entries: dict[str, Any] = {}
    for name, inner in value.items():
        entries |= flat(inner, f"{prefix}{name}.") if isinstance(inner, dict) else {f"{prefix}{name}": inner}
    return entries
