"""Checks of the arguments of public functions."""

import sys
import warnings
from collections.abc import Callable
from functools import wraps
from inspect import signature
from traceback import walk_stack
from typing import Any, ParamSpec, TypeVar

import numpy as np
from pydantic import ConfigDict, ValidationError, validate_call

from dprepro.errors import UserError
from dprepro.problems import problem_lines

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
