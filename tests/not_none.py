"""A value that a test needs."""

from typing import TypeVar

T = TypeVar("T")


def not_none(value: T | None) -> T:
    """``value``, which is not None."""
    assert value is not None
    return value
