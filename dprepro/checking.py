"""Arguments of the promised functions, checked before anything is done with them."""

from collections.abc import Callable
from functools import wraps
from inspect import signature
from typing import Any, ParamSpec, TypeVar

import numpy as np
from pydantic import ConfigDict, ValidationError, validate_call

from pipeline.errors import UserError
from pipeline.params.problems import problem_lines

P = ParamSpec("P")
T = TypeVar("T")


def checked(function: Callable[P, T]) -> Callable[P, T]:
    """``function``, whose arguments must be as it annotates them; numbers of numpy and torch become floats.

    Raises:
        UserError: one isn't; a line each says which, and what is allowed.
    """
    parameters = signature(function)
    config = ConfigDict(strict=True, arbitrary_types_allowed=True)
    validated: Callable[..., T] = validate_call(config=config)(function)

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            # all by name, so that lines have names
            return validated(**parameters.bind(*args, **kwargs).arguments)
        except ValidationError as problem:
            raise UserError("\n".join(problem_lines(problem))) from problem

    return call


def floats(name: str, values: Any) -> np.ndarray:
    """A copy of ``values``, which may be a tensor anywhere, as float64 in their shape.

    Raises:
        UserError: they aren't numbers, or not in rows of the same length.
    """
    try:
        array = values.detach().cpu().double().numpy() if hasattr(values, "detach") else values
        return np.array(array, float)
    except (TypeError, ValueError, RuntimeError) as problem:
        raise UserError(f"{name}: {type(values).__name__} that is no array of real numbers") from problem
