"""Errors of pydantic as lines for the author of the checked file."""

import re
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from dprepro.errors import listed, printable, shown

# Keys of other libraries that have no counterpart here, each with the reason
REFUSED = dict.fromkeys(
    ("early_stopping", "patience"),
    "no epsilon covers an end that private validation data decide; allowed: `epochs` or `steps` of the row, "
    "or a search over them, whose trainings the ledger counts",
)

# Parts of an error's place that are no keys: pydantic's, and the tags of the kinds of a table's columns
NUMERIC, CATEGORICAL = "[numeric]", "[categorical]"
NO_KEYS = {"[key]", NUMERIC, CATEGORICAL}


class NestedProblems(ValueError):
    """Problems with keys below the checked key, one line each."""

    def __init__(self, lines: list[str]):
        """Set ``lines``, one 'KEY: reason' for each problem."""
        super().__init__("; ".join(lines))
        self.lines = lines


def problem_lines(problem: ValidationError, checked: type[BaseModel] | None = None) -> list[str]:
    """Describe errors of pydantic; long values are cut.

    Args:
        problem: errors of pydantic.
        checked: model that raised the errors; the line for an unknown key lists the model's keys.

    Returns:
        Lines 'key: value is not allowed: reason', one per error.
    """
    lines = []
    for error in problem.errors():
        where = ".".join(printable(str(part), 100) for part in error["loc"] if part not in NO_KEYS)
        inner = error.get("ctx", {}).get("error")
        if isinstance(inner, NestedProblems):
            lines += [f"{where}.{line}" for line in inner.lines]
        elif error["type"] == "extra_forbidden":
            known = _keys(checked, error["loc"][:-1])
            allowed = f"; allowed: {listed(known, 40)}".replace("'", "") if known else ""
            lines.append(f"{where}: {REFUSED.get(str(error['loc'][-1]), f'unknown key{allowed}')}")
        elif error["type"] == "missing":
            lines.append(f"{where}: missing")
        elif error["type"] == "is_instance_of":  # the value may be private data, so it isn't shown
            lines.append(f"{where}: {type(error['input']).__name__} is not allowed: {error['msg']}")
        elif error["type"] == "value_error":
            lines.append(f"{where}: {inner}" if where else str(inner))
        else:
            lines.append(f"{where}: {shown(error['input'])} is not allowed: {_short(error['msg'])}")
    return lines


def _short(message: str) -> str:
    """``message`` of pydantic; in it, numbers such as 0.00000000001 are written as 1e-11."""
    return re.sub(r"0\.0{9,}\d+", lambda digits: f"{float(digits[0]):g}", message)


def _keys(checked: Any, place: tuple[int | str, ...]) -> list[str]:
    """Keys of the model at the path ``place`` in the model ``checked``; empty if there is no model."""
    for part in place:
        if isinstance(checked, type) and issubclass(checked, BaseModel):
            checked = checked.model_fields[str(part)].annotation if part in checked.model_fields else None
        else:  # type of a mapping's values or a list's items; type of an optional field
            checked = next((each for each in reversed(get_args(checked)) if each is not type(None)), None)
    while checked is not None and not isinstance(checked, type):
        checked = next((each for each in get_args(checked) if each is not type(None)), None)
    if not (isinstance(checked, type) and issubclass(checked, BaseModel)):
        return []
    return [field.alias or name for name, field in checked.model_fields.items()]
