"""Plain English in pages, help, the report's words and papers' files: patterns that had to be read twice.

`proselint` has no rules of one's own, and the wheel of `vale` downloads its binary at the first run.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML
from typer.main import get_command

from dprepro.pipeline.params import PAPERS
from dprepro.stages.app import app
from tests.docs.blocks import PAGES, ROOT

PATTERNS = {
    "tell": r"\b(told|tells?|telling)\b",
    "nobody in particular": r"\b(whoever|whomever|nobody|somebody|anybody|everybody)\b",
    "preposition before a relative pronoun": r"\b(of|by|from) (which|whom)\b",
    "clause in place of a noun": r"\b(th(at|ose) which|those that|what (is|are|was|were|ha[sd]|have|ran))\b",
    "clause as a subject": r"^(What|Whatever|Whether|Which|How|Why)\b(?!.*\?$)|^That (an?|the|no|one|it)\b",
    "participle before its verb": r"^(\w+ed|Left|Drawn|Shown|Known|Made|Held|Given) (is|are|was|were)\b",
    "sentence that begins with an object": r"^Of (?!course\b)",
    "contracted comparison": r"\b(as is|as are|nor (is|are|do|does)|no more(?! than\b))\b",
}
FURTHER = [
    ROOT / "SECURITY.md",
    *ROOT.glob("examples/*/README.md"),
    *ROOT.glob("stages/laboratory/**/README.md"),
]
TEXTS = ("says", "remark", "differs", "reading", "untested", "open", "choice", "why")


def prose(markdown: str) -> Iterator[str]:
    """Sentences and table cells of a page, without headings, code and quotations; links are their texts."""
    text = re.sub(r"^```.*?^```$", "", markdown, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"^#.*$|<[^>]*>|!\[[^\]]*\]\([^)]*\)", "", text, flags=re.MULTILINE)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"`[^`]*`", "X", text)
    text = re.sub(r'"[^"]*"|“[^”]*”', "Q", text.replace("*", ""))
    for part in re.split(r"\n\s*\n|\n(?=\s*(?:-|\d+\.|\|) ?)", text):
        line = " ".join(part.split()).lstrip("-| ")
        cells = line.split(" | ") if part.lstrip().startswith("|") else [line]
        for cell in cells:
            yield from filter(None, re.split(r"(?<=[.!?:]) +(?=[A-Z])", re.sub(r"^\d+\. ", "", cell)))


def words(node: object, keys: tuple[str, ...] = ()) -> Iterator[str]:
    """Texts of a YAML file: those of ``keys``, or all; a claim's quotation of its paper is left out."""
    if isinstance(node, dict):
        for key, value in node.items():
            if isinstance(value, str) and (
                not keys or (key in keys and not (key == "says" and "where" in node))
            ):
                yield value
            else:
                yield from words(value, keys)
    elif isinstance(node, list):
        for value in node:
            yield from words(value, keys)


def helps(command: Any) -> Iterator[str]:
    """Help of a command, its options and its sub-commands."""
    yield command.help or ""
    for parameter in command.params:
        yield getattr(parameter, "help", None) or ""
    for each in getattr(command, "commands", {}).values():
        yield from helps(each)


def read(path: Path) -> object:
    return YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8"))


def found(texts: Iterator[str]) -> list[str]:
    """Sentences with a pattern, each behind the pattern's name."""
    return [
        f"{name}: {sentence}"
        for text in texts
        for sentence in prose(text)
        for name, pattern in PATTERNS.items()
        if re.search(pattern, sentence)
    ]


@pytest.mark.parametrize("page", [*PAGES, *FURTHER], ids=lambda page: page.relative_to(ROOT).as_posix())
def test_pages_are_in_plain_english(page: Path) -> None:
    assert found(iter([page.read_text(encoding="utf-8")])) == []


def test_help_is_in_plain_english() -> None:
    texts = [*helps(get_command(app))]
    assert "Export a trained network" in " ".join(texts)
    assert found(iter(texts)) == []


def test_the_reports_words_are_in_plain_english() -> None:
    assert found(words(read(ROOT / "pipeline/reporting/words.yaml"))) == []


@pytest.mark.parametrize("path", sorted((ROOT / PAPERS).glob("*.yaml")), ids=lambda path: path.stem)
def test_papers_files_are_in_plain_english(path: Path) -> None:
    assert found(words(read(path), TEXTS)) == []


def test_patterns_find_what_readers_read_twice() -> None:
    twice = """
- The message tells it to whoever sees the model.
- Suspected is the step size, of which the paper says nothing.
- What ran is compared with that which is declared. That a record moves it is no more true.

Of an odd difference the end gets more than is published of a row: what is printed.
"""
    assert {line.partition(":")[0] for line in found(iter([twice]))} == set(PATTERNS)
    assert (
        found(iter(['The paper gives no step size, and we suspect ours. `told` and "of which" are quoted.']))
        == []
    )
