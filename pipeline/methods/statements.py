"""Statements about a guarantee: reasons against it, uses that it does not cover, the protected records.

Recorded statements have only a key and values. `pipeline/reporting/words.yaml` has the words for each key, so
improved words also reach old records.
"""

from pydantic import Field

from dprepro.fields import Strict


class Statement(Strict):
    """Key of a statement, and values for its words."""

    key: str
    values: dict[str, str | int | float] = Field(default_factory=dict)


def statement(key: str, **values: str | int | float) -> Statement:
    """Statement ``key`` with values for its words."""
    return Statement(key=key, values=values)
