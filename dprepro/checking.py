"""Checks of the arguments of public functions, and errors of pydantic as lines."""

import re
import sys
import warnings
from collections.abc import Callable
from functools import wraps
from inspect import signature
from traceback import walk_stack
from typing import Any, ParamSpec, TypeVar, get_args

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError, validate_call

from dprepro.errors import UserError, listed, printable, shown

P = ParamSpec("P")
T = TypeVar("T")


def checked(function: Callable[P, T]) -> Callable[P, T]:
    """Check arguments against the function's annotations at each call.

    NumPy numbers become Python numbers.

    Args:
        function: a function whose annotations pydantic can check.

    Returns:
        ``function`` with the checks.

    Raises:
        UserError: an argument is not allowed; a line for each, with the allowed values.
    """
    parameters = signature(function)
    config = ConfigDict(strict=True, arbitrary_types_allowed=True)
    validated: Callable[..., T] = validate_call(config=config)(function)

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            # by name, so that messages name the arguments
            given = parameters.bind(*args, **kwargs).arguments
            numbers = {name: value.item() for name, value in given.items() if isinstance(value, np.generic)}
            return validated(**given | numbers)
        except ValidationError as problem:
            raise UserError("\n".join(problem_lines(problem))) from problem

    return call


def warn(text: str) -> None:
    """Warn with ``text``, at the line that calls a `checked` function."""
    frames = enumerate(walk_stack(sys._getframe(1)))
    depth = next(depth for depth, (frame, _) in frames if frame.f_globals is globals())
    warnings.warn(text, stacklevel=depth + 3)


def refuse_sparse(name: str, values: Any) -> None:
    """Raise `UserError` if ``values``, the argument ``name``, is a torch tensor that isn't dense."""
    if hasattr(values, "is_sparse") and str(values.layout) != "torch.strided":
        raise UserError(f"{name}: {values.layout}; allowed: dense, as by to_dense()")


def floats(name: str, values: Any) -> np.ndarray:
    """Copy of ``values`` as float64 in the same shape.

    Args:
        name: name of the argument, for the message.
        values: numbers, nested sequences of numbers, or a tensor on any device.

    Returns:
        The copy.

    Raises:
        UserError: ``values`` aren't real numbers, or have rows of different lengths.
    """
    given = (
        f"{type(values).__name__} of {values.dtype}" if hasattr(values, "dtype") else type(values).__name__
    )
    try:
        if hasattr(values, "detach"):
            values = values.detach().cpu()
            values = (values if values.is_complex() else values.double()).numpy()
        array = np.asarray(values)
        if array.dtype.kind not in "biufO":  # numpy would drop an imaginary part, and read texts
            raise TypeError(f"{array.dtype} is not real")
        return np.array(array, float)
    except (TypeError, ValueError, RuntimeError, OverflowError) as problem:
        raise UserError(f"{name}: {given} that is no array of real numbers") from problem


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
    return re.sub(r"0\.0{9,}\d+|\d{16,}", lambda digits: f"{float(digits[0]):g}", message)


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
