"""Words of `words.yaml`: attacks, bounds and statements on guarantees.

Tables, pages, CSV files and MLflow use them. Records have only keys (`pipeline.methods.spending`), so
better words also reach old records.
"""

from collections.abc import Iterable
from pathlib import Path

from ruamel.yaml import YAML

from dprepro.errors import UserError, shown
from dprepro.fields import Strict
from dprepro.pipeline.methods.spending import Statement


class Words(Strict):
    """Content of `words.yaml`, by the keys in code and records."""

    isolation: dict[str, str]
    attacks: dict[str, str]
    bounds: dict[str, str]
    statements: dict[str, str]  # with placeholders for the values of a statement


WORDS = Words.model_validate(
    YAML(typ="safe", pure=True).load(Path(__file__).with_name("words.yaml").read_text(encoding="utf-8"))
)


def words(statement: Statement) -> str:
    """Words of a statement: why a guarantee doesn't hold, what it leaves out, or whom it protects.

    Raises:
        UserError: a record has a statement that this version doesn't know.
    """
    try:
        return WORDS.statements[statement.key].format(**statement.values)
    except (KeyError, IndexError, ValueError) as problem:
        raise UserError(
            f"statement {shown(statement.key)} of a record: not one of this version, or without its values"
        ) from problem


def joined(statements: Iterable[Statement]) -> str | None:
    """Words of several statements in one sentence; None without any."""
    return "; ".join(map(words, statements)) or None
