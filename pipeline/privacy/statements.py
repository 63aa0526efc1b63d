"""Statements on a guarantee, by key: reasons against it, uses it does not cover, the protected records.

Records have keys, and `pipeline/reporting/words.yaml` has the words, so better words also reach old records.
"""

from pydantic import Field

from pipeline.fields import Strict


class Statement(Strict):
    """A key, and what its words have to name."""

    key: str
    values: dict[str, str | int | float] = Field(default_factory=dict)


def statement(key: str, **values: str | int | float) -> Statement:
    """The statement ``key``, with the values that its words name."""
    return Statement(key=key, values=values)
