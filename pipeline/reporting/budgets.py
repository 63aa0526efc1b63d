"""How much of the paper's training a row has."""

from collections.abc import Iterable, Sequence
from typing import Any, Literal

from pipeline.params import Account, Row, Settings
from pipeline.reporting.printed import Table
from pipeline.reporting.results import Budget
from pipeline.reporting.wording import number

REDUCED = "-reduced"  # at the end of a key: the row of the rest of the key, at less cost
Length = Literal["epochs", "steps"]
LENGTHS: tuple[Length, ...] = ("epochs", "steps")


def of_row(row: Row | Account, table: Table) -> Budget:
    """As the row declares it; in a table whose training the paper doesn't give a full budget is our own."""
    if not isinstance(row, Row):
        return "full"
    ours = row.budget == "full" and not table.own and not table.budget
    return "own" if ours else row.budget


def whole_of(key: str, row: Row, settings: Settings) -> Row | None:
    """The row that a reduced one is a part of: of its key, or the one it simulates; None without one."""
    twin = settings.rows.get(key.removesuffix(REDUCED)) if key.endswith(REDUCED) else None
    return twin or (settings.rows[row.simulates] if row.simulates else None)


def share(key: str, row: Row, settings: Settings, table: Table, budget: str) -> str:
    """``10 of 50 epochs`` of a reduced row, ``own budget: 8 epochs`` where the paper gives none.

    The whole is the row that the reduced one is a part of, else what the paper's file says. Rows that train
    as long have smaller batches: ``batch 8 of 4096``. ``budget`` is what the row's counts as in this table.
    """
    if budget == "own":
        return own(row.resolved)
    lengths = _lengths(row.resolved)
    whole = whole_of(key, row, settings)
    for name, values in lengths.items():
        full = _values(whole.resolved, name) if whole else [table.budget.get(name, 0.0)]
        if any(full) and full != values:
            return f"{_range(values)} of {_counted(full, name)}"
    if whole and (batches := _values(row.resolved, "batch")) != (full := _values(whole.resolved, "batch")):
        return f"batch {_range(batches)} of {_range(full)}"
    return f"reduced budget: {_trained(row.resolved)}"


def own(levels: Sequence[Any]) -> str:
    """``own budget: 1 to 8 epochs``, of some levels of a row."""
    return f"own budget: {_trained(levels)}"


def _trained(levels: Sequence[Any]) -> str:
    return " and ".join(_counted(values, name) for name, values in _lengths(levels).items())


def _lengths(levels: Sequence[Any]) -> dict[Length, list[float]]:
    return {name: values for name in LENGTHS if (values := _values(levels, name))}


def _values(levels: Iterable[Any], name: str) -> list[float]:
    """The values that a setting has over the levels, rising; none where the method has no such setting."""
    return sorted({value for level in levels if (value := getattr(level, name, None)) is not None})


def _counted(values: list[float], name: str) -> str:
    return f"{_range(values)} {name.removesuffix('s') if values == [1] else name}"


def _range(values: list[float]) -> str:
    ends = [number(value) for value in (values[0], values[-1])]
    return ends[0] if len(values) == 1 else " to ".join(ends)
