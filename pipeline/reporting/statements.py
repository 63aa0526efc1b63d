"""The words of what is said of a guarantee: why it doesn't hold, what it leaves out, whom it protects.

Records keep keys (`pipeline.privacy.statements`), so that a better word in `words.yaml` reaches every number
there ever was.
"""

from collections.abc import Iterable

from pipeline.privacy.statements import Statement
from pipeline.reporting.vocabulary import WORDS


def words(statement: Statement) -> str:
    """A statement in words."""
    return WORDS.statements[statement.key].format(**statement.values)


def joined(statements: Iterable[Statement]) -> str | None:
    """Several in one sentence; None of none."""
    return "; ".join(map(words, statements)) or None
