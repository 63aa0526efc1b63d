"""README: short, and its findings have the numbers of the records."""

import re
from fnmatch import fnmatch
from typing import Any

import pandas as pd
import pytest

from dprepro.pipeline.ledgers.sentences import downwards, upwards
from dprepro.pipeline.params import load
from dprepro.pipeline.reporting.effects import difference
from dprepro.pipeline.reporting.sources import read_sources
from dprepro.pipeline.reporting.table import results
from tests.docs.blocks import ROOT

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
    return f"{found.value:+.1f} ± {found.half:.1f}"


def upper(table: pd.DataFrame, row: str, level: str) -> str:
    text = upwards(line_of(table, row, level)["epsilon_upper"])
    assert float(text.replace(",", "")) >= line_of(table, row, level)["epsilon_upper"]
    return f"≤ {text}"


T5, T7, PSGD = "davody-t5-", "davody-t7-bilstm-", "phan-f4a-psgd"
LITERAL, SIMULATED = f"{T5}bn-lenet5-literal-planned", ("sander-mnist", "batch=64")


def test_a_tuned_baseline(table: pd.DataFrame) -> None:
    (line,) = (each for each in LINES if "Phan" in each)
    mechanism = line_of(table, "phan-f4a-adlm-reduced", "epsilon=0.25")
    baseline = line_of(table, PSGD, "epsilon=0.25")
    assert ours(table, PSGD, "epsilon=0.25") in line
    assert upper(table, PSGD, "epsilon=0.25") in line
    assert f"{mechanism['paper_value']:.1f}" in line
    assert f"{baseline['paper_value']:.1f}" in line
    assert f"≥ {downwards(mechanism['epsilon_lower'])}" in line


def test_batch_norm(table: pd.DataFrame) -> None:
    (line,) = (each for each in LINES if "Batch norm inside" in each)
    found = line_of(table, LITERAL, "epsilon=7")
    assert ours(table, LITERAL, "epsilon=7") in line
    assert f"{found['paper_value']:.1f}" in line
    assert pd.isna(found["epsilon_upper"])
    assert "not proven" in line


def test_layer_norm(table: pd.DataFrame) -> None:
    (line,) = (each for each in LINES if "Layer norm" in each)
    pairs = [
        ("ln-lenet5-planned", "lenet5-planned", "epsilon=3"),
        ("ln-lenet5-strict-repeated", "lenet5-strict-repeated", "epsilon=0.1"),
    ]
    for left, right, level in pairs:
        assert gain(table, T5 + left, T5 + right, level) in line
        assert upper(table, T5 + left, level) in line
        printed = line_of(table, T5 + left, level), line_of(table, T5 + right, level)
        assert f"{printed[0]['paper_value'] - printed[1]['paper_value']:+.1f}" in line


def test_word_vectors(table: pd.DataFrame) -> None:
    (line,) = (each for each in LINES if "word vectors" in each)
    for row in ("planned", "scratch-planned"):
        assert ours(table, T7 + row, "epsilon=3") in line
    assert f"{line_of(table, f'{T7}planned', 'epsilon=3')['paper_value']:.1f}" in line
    assert upper(table, f"{T7}planned", "epsilon=3") in line


def test_a_simulation(table: pd.DataFrame) -> None:
    (line,) = (each for each in LINES if "Sander" in each)
    for place in (SIMULATED, ("sander-mnist", "batch=4096")):
        assert ours(table, *place) in line
        assert upper(table, *place) in line


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
