"""Statements on a guarantee, by key: reasons against it, uses it does not cover, the protected records.

Records have keys, and `pipeline/reporting/words.yaml` has the words, so better words also reach old records.
"""

from pydantic import Field

from pipeline.fields import Strict


class Statement(Strict):
    """Key of a statement, and values for its words."""

    key: str
    values: dict[str, str | int | float] = Field(default_factory=dict)


def statement(key: str, **values: str | int | float) -> Statement:
    """Statement ``key`` with values for its words."""
    return Statement(key=key, values=values)
