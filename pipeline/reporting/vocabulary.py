"""Every verdict and attack that the report knows, and what is said of guarantees, as `words.yaml` has it.

Tables, pages, CSV files and MLflow take them from here.
"""

from pathlib import Path
from typing import Literal

from ruamel.yaml import YAML

from pipeline.fields import Strict


class Word(Strict):
    """A verdict in words."""

    text: str  # in a cell
    tone: Literal["good", "bad", "warn", "plain", "faint"]  # colours of the page
    counted: str  # behind a number, as in '3 agree with the paper'


class Words(Strict):
    """All of the file, by the keys that code and records have."""

    values: dict[str, Word]
    privacy: dict[str, Word]
    ledgers: dict[str, Word]
    severities: dict[str, Word]
    outcomes: dict[str, Word]
    claims: dict[str, Word]
    attacks: dict[str, str]
    bounds: dict[str, str]
    statements: dict[str, str]  # with places for what a statement names


WORDS = Words.model_validate(
    YAML(typ="safe", pure=True).load(Path(__file__).with_name("words.yaml").read_text(encoding="utf-8"))
)
VALUES, PRIVACY, LEDGERS, SEVERITIES, OUTCOMES, CLAIMS = (
    WORDS.values,
    WORDS.privacy,
    WORDS.ledgers,
    WORDS.severities,
    WORDS.outcomes,
    WORDS.claims,
)
