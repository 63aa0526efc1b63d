"""Every code block of what is written for people: run somewhere, or at least a command that there is.

A page may show what takes hours. Of such a block each line is held to the commands, options, stages, targets
and rows that there are. What is cheap and changes nothing is run. README is short,
and its findings have the numbers of the records.
"""

import re
import shlex
import shutil
from collections import Counter
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from typer.testing import CliRunner

from dprepro.pipeline.ledgers.sentences import downwards, upwards
from dprepro.pipeline.params import load
from dprepro.pipeline.reporting.effects import difference
from dprepro.pipeline.reporting.table import read_sources, results
from dprepro.stages.app import app
from tests.docs.blocks import CONSOLE, ROOT, blocks, declared, problem

# blocks that are no commands, and the test that runs them
RUN_BY = {
    ("CONTRIBUTING.md", "python", 2): "tests/test_contributing.py",
    ("CONTRIBUTING.md", "yaml", 1): "tests/test_contributing.py",
    ("docs/audit-your-model.md", "python", 4): "tests/library/test_replay.py",
    ("docs/audit-your-training.md", "python", 2): "tests/library/test_audit_training.py",
    ("docs/design.md", "text", 1): "tests/test_design.py",
    ("docs/laboratory.md", "yaml", 2): "tests/test_wheel.py",
    ("docs/library.md", "python", 10): "tests/library/test_library.py",
    ("docs/own-model.md", "python", 1): "tests/test_contributing.py",
    ("docs/own-model.md", "yaml", 1): "tests/test_contributing.py",
    ("docs/private-model.md", "python", 2): "tests/docs/test_own_data.py",
    ("docs/tables.md", "python", 1): "tests/docs/test_own_data.py",
    ("docs/tables.md", "yaml", 1): "tests/docs/test_own_data.py",
    ("docs/public-network.md", "python", 1): "tests/data/test_trunk.py",
    ("docs/public-network.md", "yaml", 1): "tests/data/test_trunk.py",
    ("docs/own-data.md", "python", 1): "tests/docs/test_own_data.py",
    ("docs/own-data.md", "yaml", 2): "tests/docs/test_own_data.py",
    ("docs/shuffling.md", "python", 1): "tests/library/test_samplers.py",
}
# commands that answer in seconds and need nothing but what is committed
ANSWERS = re.compile(r"dprepro (epsilon|compare) ")
TYPED = [block for block in blocks() if block.language in CONSOLE]
EVERY = sorted({(block.page, line) for block in TYPED for line in block.commands})
CHEAP = [line for _, line in EVERY if ANSWERS.match(line)]


@pytest.fixture(scope="module")
def names() -> set[str]:
    return declared()


def test_every_other_block_is_run_by_a_test() -> None:
    counts = Counter((block.page, block.language) for block in blocks() if block.language not in CONSOLE)
    assert {(page, language, count) for (page, language), count in counts.items()} == set(RUN_BY)
    for (page, _, _), test in RUN_BY.items():
        assert page.rpartition("/")[2] in (ROOT / test).read_text(), f"{test} reads no {page}"


@pytest.mark.parametrize(("page", "line"), EVERY)
def test_every_line_is_a_command_that_there_is(names: set[str], page: str, line: str) -> None:
    assert problem(line, names) is None, page


@pytest.mark.parametrize(
    "line",
    [
        *("dprepro trian my-row", "dprepro train no-such-row", "dprepro epsilon --sigmas 1"),
        *("dprepro epsilon --sigma much --batch 1 --examples 2", "dprepro new data", "make coffee"),
        *(
            "dvc repro train@none",
            "dvc repro --glob train@none-*",
            "dvc repro bake",
            "pip install -e '.[gold]'",
            "curl example.org",
        ),
        *("export bread", "python -m no_such_module"),
    ],
)
def test_what_there_is_not_is_noticed(names: set[str], line: str) -> None:
    assert problem(line, names) is not None


@pytest.mark.parametrize("line", sorted(set(CHEAP)))
def test_what_answers_at_once_is_run(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(ROOT / "params.yaml", tmp_path)
    monkeypatch.chdir(ROOT if line.startswith("dprepro compare") else tmp_path)
    done = CliRunner().invoke(app, shlex.split(line, comments=True)[1:], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert done.output.strip()


TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
LINES = re.findall(r"^\| (?!finding|---)(.*) \|$", TEXT, re.MULTILINE)


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    return results(read_sources(load(ROOT / "params.yaml"), ROOT))


def line_of(table: pd.DataFrame, row: str, level: str) -> dict[str, Any]:
    found = (table["row"] == row) & (table["level"] == level) & (table["metric"] == "test_accuracy")
    (line,) = table[found].to_dict("records")
    return line


def ours(table: pd.DataFrame, row: str, level: str) -> str:
    line = line_of(table, row, level)
    return f"{line['ours']:.1f} ± {line['half_width']:.1f}"


def gain(table: pd.DataFrame, left: str, right: str, level: str) -> str:
    found = difference(line_of(table, left, level), line_of(table, right, level))
    return f"{found.value:+.1f} ± {found.half_width:.1f}"


def upper(table: pd.DataFrame, row: str, level: str) -> str:
    text = upwards(line_of(table, row, level)["epsilon_upper"])
    assert float(text.replace(",", "")) >= line_of(table, row, level)["epsilon_upper"]
    return f"≤ {text}"


T5, T7 = "davody-t5-", "davody-t7-bilstm-"
PSGD, ADLM, LITERAL = "phan-f4a-psgd", "phan-f4a-adlm-reduced", f"{T5}bn-lenet5-literal-planned"


def findings(table: pd.DataFrame) -> dict[str, list[str]]:
    """Texts that a finding has, by words of it."""

    def printed(row: str, level: str) -> float:
        return float(line_of(table, row, level)["paper_value"])

    def found(row: str, level: str) -> list[str]:
        return [ours(table, row, level), upper(table, row, level)]

    texts: dict[str, list[str]] = {
        "Phan": [
            *found(PSGD, "epsilon=0.25"),
            f"{printed(PSGD, 'epsilon=0.25'):.1f}",
            f"{printed(ADLM, 'epsilon=0.25'):.1f}",
            f"≥ {downwards(line_of(table, ADLM, 'epsilon=0.25')['epsilon_lower'])}",
        ],
        "Batch norm inside": [
            ours(table, LITERAL, "epsilon=7"), f"{printed(LITERAL, 'epsilon=7'):.1f}", "not proven",
        ],
        "Layer norm": [],
        "word vectors": [
            *found(f"{T7}planned", "epsilon=3"),
            ours(table, f"{T7}scratch-planned", "epsilon=3"),
            f"{printed(f'{T7}planned', 'epsilon=3'):.1f}",
        ],
        "Sander": [*found("sander-mnist", "batch=64"), *found("sander-mnist", "batch=4096")],
    }  # fmt: skip
    for end, level in (("planned", "epsilon=3"), ("strict-repeated", "epsilon=0.1")):
        left, right = f"{T5}ln-lenet5-{end}", f"{T5}lenet5-{end}"
        apart = f"{printed(left, level) - printed(right, level):+.1f}"
        texts["Layer norm"] += [gain(table, left, right, level), upper(table, left, level), apart]
    return texts


def test_findings_have_the_numbers_of_the_records(table: pd.DataFrame) -> None:
    expected = findings(table)
    assert len(LINES) == len(expected)
    for words, texts in expected.items():
        (line,) = (each for each in LINES if words in each)
        assert [text for text in texts if text not in line] == []
    assert pd.isna(line_of(table, LITERAL, "epsilon=7")["epsilon_upper"])


def test_it_is_short_and_begins_with_its_commands() -> None:
    assert len(TEXT.splitlines()) <= 90
    assert len(TEXT.split()) <= 700
    beginning = " ".join(TEXT.split()[:120])
    assert "make demo" in beginning
    assert "make test" in beginning


def test_the_commands_that_rebuild(table: pd.DataFrame) -> None:
    """Row and level of the number exist; the table's shown rows are named, all trainings counted."""
    settings = load(ROOT / "params.yaml")
    ((row, level),) = re.findall(r"dprepro rerun (\S+) --level (\S+)", TEXT)
    assert level in {settings.rows[row].level(each) for each in settings.rows[row].resolved}
    ((command, count),) = re.findall(r"--glob (.*) # Table 5: (\d+) trainings", TEXT)
    patterns = re.findall(r"evaluate@([^']+)'", command)
    rows = {key for key in settings.rows if any(fnmatch(key, pattern) for pattern in patterns)}
    shown = table[(table["paper"] == "davody2020") & (table["table"] == "t5") & table["is_primary"]]
    assert set(shown["row"]) <= rows
    assert sum(len(settings.rows[key].trainings) for key in rows) == int(count)
