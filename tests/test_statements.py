"""What is said of guarantees: every key has words, every word a key, and committed keys speak."""

import ast
from collections.abc import Iterator
from functools import cache
from itertools import product
from pathlib import Path
from string import Formatter
from typing import get_args

from dprepro.fields import Isolation
from dprepro.pipeline.methods.spending import Statement
from dprepro.pipeline.reporting.wording import WORDS, words
from dprepro.pipeline.results import records

ROOT = Path(__file__).parents[1]


def calls() -> Iterator[ast.Call]:
    for path in ROOT.joinpath("pipeline").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "statement":
                yield node


def committed() -> Iterator[Statement]:
    """Every statement of the runs and the ledgers that git has."""
    rows = [path.stem for path in ROOT.joinpath(records.TRAININGS).glob("*.jsonl")]
    for run in filter(None, (records.read_run(row, ROOT) for row in rows)):
        for training in run.trainings:
            yield from (
                *training.broken,
                *training.not_covered,
                *([training.protects] if training.protects else []),
            )
    lines = [path.stem for path in ROOT.joinpath(records.LEDGERS).glob("*.json")]
    for ledgers in filter(None, (records.read_ledgers(line, ROOT) for line in lines)):
        for entry in ledgers.entries:
            ledger = entry.ledger
            yield from (*ledger.reasons, *ledger.not_covered, *([ledger.protects] if ledger.protects else []))


@cache
def said_in_records() -> list[Statement]:
    return list(committed())


def test_every_key_has_words_with_a_place_for_every_value() -> None:
    """Also each key of a choice between two."""
    for call in calls():
        said = [call.args[0]]
        said = [said[0].body, said[0].orelse] if isinstance(said[0], ast.IfExp) else said
        for key in (each.value for each in said if isinstance(each, ast.Constant)):
            places = {name for _, name, *_ in Formatter().parse(WORDS.statements[str(key)]) if name}
            assert places == {keyword.arg for keyword in call.keywords}, key


def test_every_word_is_said_by_something() -> None:
    """A record or code, where a key is a word of its own, or joined of trust and of what is claimed."""
    code = "".join(path.read_text(encoding="utf-8") for path in ROOT.joinpath("pipeline").rglob("*.py"))
    joined = {"_at_".join(each) for each in product(("local", "curated"), ("claimed", "accounted"))}
    said = joined | {each.key for each in said_in_records()}
    assert {key for key in WORDS.statements if key not in said and f'"{key}"' not in code} == set()
    assert said <= WORDS.statements.keys()


def test_what_is_committed_speaks() -> None:
    assert said_in_records()
    for said in said_in_records():
        assert words(said)


def test_every_evidence_of_independent_gradients_has_words() -> None:
    assert WORDS.isolation.keys() == {*get_args(Isolation), "before_noted"}
