"""What runs are called, and how settings are written so that a person's filter finds them."""

import json
import re
from collections.abc import Mapping
from math import isinf
from typing import Any

from pipeline.params import Settings
from pipeline.reporting.papers import Paper
from pipeline.results.records import Record

_NOT_IN_A_NAME = re.compile(r"[^\w\-./: ]")  # of a metric


def level_text(level: str) -> str:
    """``epsilon=3`` as ``epsilon 3``."""
    name, equals, value = level.partition("=")
    return f"{name.replace('_', ' ')} {value}" if equals else level


def place(record: Record, paper: Paper) -> str:
    """``Table 5``, as the paper calls it."""
    table = paper.tables.get(record.table)
    return table.name if table else record.table


def row_name(record: Record, paper: Paper, settings: Settings) -> str:
    """``LN-LeNet-5 (Table 2, reduced)``, which no other row of the paper has."""
    return f"{record.label} {_which(record, paper, settings)}"


def level_name(record: Record, paper: Paper, settings: Settings, level: str, seed: int | None = None) -> str:
    """``LN-LeNet-5, epsilon 3, seed 0 (Table 5)``; without a seed the mean over seeds."""
    parts = [record.label, level_text(level), *([] if seed is None else [f"seed {seed}"])]
    return f"{', '.join(parts)} {_which(record, paper, settings)}"


def _which(record: Record, paper: Paper, settings: Settings) -> str:
    """What tells a row from those with the same label; its key where nothing else does."""
    same = [
        key
        for key, line in settings.lines.items()
        if (line.paper, line.table, line.label, getattr(line, "budget", "full"))
        == (record.paper, record.table, record.label, record.budget)
    ]
    parts = [place(record, paper)]
    if record.budget == "reduced":
        parts.append("reduced")
    if any(key != record.row for key in same):
        parts.append(record.row)
    return f"({', '.join(parts)})"


def metric_name(name: str) -> str:
    """``name`` without signs that MLflow refuses."""
    return _NOT_IN_A_NAME.sub(" ", name)


def canonical(value: Any) -> str:
    """A setting as one would type it: ``3`` for 3.0, ``1e-5``, ``inf``, ``true``, ``none``."""
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    if isinstance(value, float):
        return _number(value)
    if value in ("Infinity", "-Infinity"):  # as records have it, whose settings are JSON
        return value.replace("Infinity", "inf")
    return value if isinstance(value, str) else json.dumps(value, separators=(", ", ": "))


def _number(value: float) -> str:
    if isinf(value):
        return "inf" if value > 0 else "-inf"
    if value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return re.sub(r"e([+-]?)0*", lambda found: f"e{found[1].replace('+', '')}", repr(value))


def flat(value: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings as ``a.b``."""
    found: dict[str, Any] = {}
    for name, inner in value.items():
        found |= flat(inner, f"{prefix}{name}.") if isinstance(inner, dict) else {f"{prefix}{name}": inner}
    return found
