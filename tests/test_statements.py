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


def keys(said: ast.expr) -> Iterator[str]:
    """The keys that the first argument of a call of `statement` may be."""
    if isinstance(said, ast.Constant) and isinstance(said.value, str):
        yield said.value
    elif isinstance(said, ast.IfExp):
        yield from keys(said.body)
        yield from keys(said.orelse)
    elif isinstance(said, ast.JoinedStr):
        # what stands in between is one of the words of this package's own choosing
        between = {"trust": ("local", "curated"), "epsilon_kind": ("claimed", "accounted")}
        parts = [
            between[ast.unparse(part.value)] if isinstance(part, ast.FormattedValue) else (str(part.value),)  # type: ignore[attr-defined]
            for part in said.values
        ]
        yield from ("".join(each) for each in product(*parts))
    else:
        # a name that was given one of two keys in the line before
        assert ast.unparse(said) == "kind", ast.unparse(said)
        yield from ("informed_relevance", "public_relevance")


def calls(files: str = "**/*.py") -> Iterator[ast.Call]:
    for path in ROOT.joinpath("pipeline").glob(files):
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
    for call in calls():
        for key in keys(call.args[0]):
            places = {name for _, name, *_ in Formatter().parse(WORDS.statements[key]) if name}
            assert places == {keyword.arg for keyword in call.keywords}, key


def test_every_word_is_said_by_something() -> None:
    said = {key for call in calls() for key in keys(call.args[0])} | {each.key for each in said_in_records()}
    assert WORDS.statements.keys() == said


def test_what_is_committed_speaks() -> None:
    assert said_in_records()
    for said in said_in_records():
        assert words(said)


def test_every_evidence_of_independent_gradients_has_words() -> None:
    assert WORDS.isolation.keys() == {*get_args(Isolation), "before_noted"}
