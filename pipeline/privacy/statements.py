"""What can be said of a guarantee, by key: why it doesn't hold, what it leaves out, whom it protects.

Files keep keys, and `pipeline/reporting/words.yaml` has the words, so that old numbers speak today's words.
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
