"""What is written on adding is true: a laboratory trains a model by a method without another change."""

import json
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from dprepro.errors import UserError
from dprepro.pipeline import extensions, params
from dprepro.pipeline.audits import mechanism, pair
from dprepro.pipeline.data.fetch import fetch
from dprepro.pipeline.data.prepare import prepare
from dprepro.pipeline.methods.settings import method_settings
from tests.conftest import forgetting
from tests.docs.blocks import WRITTEN, blocks, lay
from tests.laboratory import laboratory, run

# the rows of both pages
ROW, PRIVATE = (
    block.text
    for page in ("CONTRIBUTING.md", "docs/own-model.md")
    for block in blocks(page)
    if block.language == "yaml"
)
PARAMS = f"""
source: {{kind: synthetic}}
code: [lab]
raw:
  mnist: {{train: 2000, test: 200}}
  kmnist: {{train: 20, test: 10}}
data:
  mnist: {{raw: mnist, train: 1900, validation: 100, public: {{raw: kmnist, count: 8}}}}
rows:
{ROW}
"""


def test_a_model_is_one_file_and_a_private_method_one_room(tmp_path: Path) -> None:
    lay(tmp_path, WRITTEN)
    with laboratory(tmp_path, PARAMS):
        _trained_and_attacked()


def _trained_and_attacked() -> None:
    rooms = {Path(name).parent.as_posix() for name in WRITTEN}
    assert rooms == {"lab/models", "lab/methods/private_signs"}
    settings = params.load()
    for name in settings.raw:
        fetch(name, settings)
    prepare("mnist", settings)
    for stage in ("train", "evaluate", "ledger"):
        run(f"{stage} my-perceptron")
    with (
        patch.object(mechanism, "LONGEST", 100),
        patch.object(pair, "NUMBERS", 0),
    ):  # attacks of few steps and runs
        run("audit my-perceptron")
    trainings = lines("trainings")
    assert {(each["method"], each["model"]["name"]) for each in trainings} == {
        ("private_signs", "perceptron")
    }
    accuracies = [each["metrics"]["test_accuracy"] for each in lines("evaluations")]
    assert len(accuracies) == 6
    assert max(accuracies) > 0.3  # a tenth is chance
    # its ledger bounds what its attacks show
    entries = read("ledgers")["entries"]
    epsilons = {entry["level"]: entry["ledger"]["epsilon_upper"] for entry in entries}
    assert 0 < epsilons["sigma=4"] < epsilons["sigma=1"]
    attacks = read("audits")["attacks"]
    assert {attack["attack"] for attack in attacks} == {"canaries", "pair", "floating_point"}
    for attack in (attack for attack in attacks if attack["attack"] != "floating_point"):
        assert all(bound["epsilon"] <= attack["epsilon_upper"] for bound in attack["bounds"])
    # a search, a new row and the figure's key
    searched = PARAMS + "searches:\n  rates: {row: my-perceptron, grid: {learning_rate: [0.001, 0.003]}}\n"
    Path("params.yaml").write_text(searched)
    assert "learning_rate" in run("search rates")
    row = "new row begun --data mnist --model perceptron --method private_signs"
    assert "declared" in run(row)
    assert method_settings()["private_signs"].title == "private SignSGD"
    # the same model by another private method, at the page's settings but for their length and number
    short = PRIVATE.replace("seeds: 3", "seeds: 1").replace("epochs: 8", "epochs: 1")
    assert short.count("seeds: 1") == short.count("epochs: 1") == 1
    Path("params.yaml").write_text(PARAMS.replace(ROW, short))
    assert "2 trained" in run("train my-perceptron")


def read(kind: str) -> Any:
    return json.loads(Path(f"reports/{kind}/my-perceptron.json").read_text())


def lines(kind: str) -> list[Any]:
    """Records with a line a training."""
    return [json.loads(line) for line in Path(f"reports/{kind}/my-perceptron.jsonl").read_text().splitlines()]


def test_a_name_that_is_taken_is_refused(tmp_path: Path) -> None:
    (tmp_path / "taking/models").mkdir(parents=True)
    (tmp_path / "taking/models/lenet5.py").write_text("def build(model, shape, classes): ...\n")
    with forgetting():
        extensions.use(["taking"], tmp_path)
        with pytest.raises(UserError, match=r"taking/models/lenet5.py: .*lenet5.py has that name too"):
            extensions.extensions("models")


def test_a_package_of_another_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "json").mkdir()
    (tmp_path / "params.yaml").write_text("code: [json]\nraw: {}\ndata: {}\nrows: {}\n")
    line = r"params.yaml: code: 'json' is .*/json too; allowed: another name"
    with forgetting(), pytest.raises(UserError, match=line):
        params.load(tmp_path / "params.yaml")
