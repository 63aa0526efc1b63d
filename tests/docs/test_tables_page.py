"""docs/tables.md, typed as it stands: from a CSV file to predictions."""

import csv
from contextlib import chdir
from pathlib import Path

from ruamel.yaml import YAML

from dprepro.pipeline.results import records
from tests.commands import typed
from tests.docs.blocks import begin, blocks
from tests.not_none import not_none

PAGE = [*blocks("docs/tables.md")]


def test_the_page_runs_from_top_to_bottom(tmp_path: Path) -> None:
    begin(tmp_path)
    schema = tmp_path / "patients.schema.yaml"
    for block in PAGE:
        if block.language == "python":
            with chdir(tmp_path):
                exec(block.text, {})
        elif block.language == "yaml":
            columns = YAML(typ="safe").load(schema.read_text())["columns"]
            assert columns == dict.fromkeys(YAML(typ="safe").load(block.text)["columns"])
            schema.write_text(block.text)
        else:
            for line in block.commands:
                typed(line, tmp_path, tmp_path)
    (measured,) = not_none(records.read_evaluation("risk", tmp_path)).trainings
    assert measured.metrics["test_accuracy"] > 0.9  # six of ten are well
    (entry,) = not_none(records.read_ledgers("risk", tmp_path)).entries
    assert 0.9 < not_none(entry.ledger.epsilon_upper) <= 1
    with open(tmp_path / "predicted.csv") as file:
        predicted = [*csv.DictReader(file)]
    assert len(predicted) == 50_000
    assert [*predicted[0]][:5] == ["age", "pressure", "ward", "outcome", "class"]
