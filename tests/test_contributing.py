"""What is written on adding is true: a laboratory trains that model by that method without another change."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.docs.blocks import WRITTEN, blocks, lay

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


def test_a_model_is_one_file_and_a_private_method_one_room(tmp_path: Path, typed: Callable[..., str]) -> None:
    laboratory = tmp_path

    def run(line: str) -> str:
        return typed(line, laboratory)

    lay(laboratory, {**WRITTEN, "params.yaml": PARAMS})
    rooms = {Path(name).parent.as_posix() for name in WRITTEN}
    assert rooms == {"lab/models", "lab/methods/private_signs"}
    data = (
        "from dprepro.pipeline import params; from dprepro.pipeline.data import fetch, prepare; "
        "settings = params.load(); "
        "[fetch.fetch(name, settings) for name in settings.raw]; prepare.prepare('mnist', settings)"
    )
    run(f'python -c "{data}"')
    for stage in ("train", "evaluate", "ledger", "audit"):
        run(f"dprepro {stage} my-perceptron")
    trainings = lines(laboratory, "trainings")
    assert {(each["method"], each["model"]["name"]) for each in trainings} == {
        ("private_signs", "perceptron")
    }
    accuracies = [each["metrics"]["test_accuracy"] for each in lines(laboratory, "evaluations")]
    assert len(accuracies) == 6
    assert max(accuracies) > 0.3  # a tenth is chance
    # its ledger bounds what its attacks show
    entries = read(laboratory, "ledgers")["entries"]
    epsilons = {entry["level"]: entry["ledger"]["epsilon_upper"] for entry in entries}
    assert 0 < epsilons["sigma=4"] < epsilons["sigma=1"]
    attacks = read(laboratory, "audits")["attacks"]
    assert {attack["attack"] for attack in attacks} == {"canaries", "pair", "floating_point"}
    for attack in (attack for attack in attacks if attack["attack"] != "floating_point"):
        assert all(bound["epsilon"] <= attack["epsilon_upper"] for bound in attack["bounds"])
    # a search, a new row and the figure's key
    searched = PARAMS + "searches:\n  rates: {row: my-perceptron, grid: {learning_rate: [0.001, 0.003]}}\n"
    (laboratory / "params.yaml").write_text(searched)
    assert "learning_rate" in run("dprepro search rates")
    row = "dprepro new row begun --data mnist --model perceptron --method private_signs"
    assert "declared" in run(row)
    script = (
        "from dprepro.pipeline import params; settings = params.load(); "
        "from dprepro.pipeline.methods.settings import method_settings; "
        "print(method_settings()['private_signs'].title)"
    )
    assert "private SignSGD\n" in run(f'python -c "{script}"')
    # the same model by another private method, at the page's settings but for their length and number
    short = PRIVATE.replace("seeds: 3", "seeds: 1").replace("epochs: 8", "epochs: 1")
    assert short.count("seeds: 1") == short.count("epochs: 1") == 1
    (laboratory / "params.yaml").write_text(PARAMS.replace(ROW, short))
    assert "2 trained" in run("dprepro train my-perceptron")


def read(laboratory: Path, kind: str) -> Any:
    return json.loads((laboratory / f"reports/{kind}/my-perceptron.json").read_text())


def lines(laboratory: Path, kind: str) -> list[Any]:
    """Records with a line a training."""
    return [
        json.loads(line)
        for line in (laboratory / f"reports/{kind}/my-perceptron.jsonl").read_text().splitlines()
    ]
