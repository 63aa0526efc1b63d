"""`dprepro equivalence` in a small repository: what it proves, and what it refuses to."""

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
METHOD = "pipeline/methods/dpsgd/method.py"
DESCENT = "gradients = {name: value / self.batch for name, value in sums.items()}"
PARAMS = """
source: {kind: synthetic}
raw:
  mnist: {train: 200, test: 20}
  kmnist: {train: 20, test: 10}
data:
  toy: {raw: mnist, train: 180, validation: 20, public: {raw: kmnist, count: 8}}
rows:
  toy:
    paper: davody2020
    table: t5
    label: DPSGD (LN-LeNet-5)
    data: toy
    model: {name: lenet5, normalization: layer}
    method: dpsgd
    seeds: 2
    reproducible: false
    settings: {batch: 20, epochs: 0.4, learning_rate: 0.2, clip: 1.0, delta: 1e-3}
    levels: [{epsilon: 3}, {epsilon: .inf, batch: 10}]
"""


def run(checkout: Path, *arguments: str, status: int = 0) -> str:
    # neither the variables of a git hook that runs the tests
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    who = {f"GIT_{role}_{what}": "test" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    environment = {**kept, **who, "PYTHONPATH": str(checkout), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(arguments, cwd=checkout, env=environment, capture_output=True, text=True)
    assert done.returncode == status, f"{' '.join(arguments)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


Dprepro = Callable[..., str]  # a checkout, arguments, and the status there is to be


@pytest.fixture(scope="module")
def dprepro(warm: Path) -> Dprepro:
    """The command, run in a checkout by its own code."""

    def dprepro(checkout: Path, *arguments: str, status: int = 0) -> str:
        return run(checkout, str(warm / "dprepro"), *arguments, status=status)

    return dprepro


@pytest.fixture(scope="module")
def original(dprepro: Dprepro, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository whose one row was trained and measured by its one commit."""
    folder = tmp_path_factory.mktemp("original") / "checkout"
    for name in ("pipeline", "stages"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / ".gitignore", folder)
    (folder / "pipeline/identity/equivalences.json").write_text('{"findings": []}\n')
    (folder / "params.yaml").write_text(PARAMS)
    run(folder, "git", "init", "--quiet", "--initial-branch", "main")
    run(folder, "git", "add", "--all")
    run(folder, "git", "commit", "--quiet", "--message", "the code that trains")
    for arguments in (["fetch", "mnist"], ["fetch", "kmnist"], ["prepare", "toy"]):
        dprepro(folder, *arguments)
    for stage in ("train", "evaluate"):
        dprepro(folder, stage, "toy")
    return folder


@pytest.fixture
def checkout(original: Path, tmp_path: Path) -> Path:
    return shutil.copytree(original, tmp_path / "checkout")


def edit(checkout: Path, name: str, before: str, after: str) -> None:
    path = checkout / name
    text = path.read_text()
    assert text.count(before) >= 1, before
    path.write_text(text.replace(before, after))
    run(checkout, "git", "commit", "--quiet", "--all", "--message", "an edit")


def add_other(checkout: Path) -> None:
    """Declare the row a second time, as 'other', which has the same numbers."""
    params = checkout / "params.yaml"
    text = params.read_text()
    params.write_text(text.replace("  toy:\n    paper", "  other: &other\n    paper") + "  toy: *other\n")
    for folder in ("runs", "evaluations"):
        record = (checkout / f"reports/{folder}/toy.json").read_text()
        (checkout / f"reports/{folder}/other.json").write_text(record.replace('"toy"', '"other"'))


def findings(checkout: Path) -> list[dict[str, Any]]:
    return json.loads((checkout / "pipeline/identity/equivalences.json").read_text())["findings"]


def test_unchanged_code_needs_no_proof(dprepro: Dprepro, checkout: Path) -> None:
    assert dprepro(checkout, "equivalence") == ""
    assert findings(checkout) == []
    assert "0 replicas trained, 4 stand" in dprepro(checkout, "train", "toy")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (DESCENT, DESCENT.replace("value /", "-value /")),
        ("total + part[name] for", "total + 1.001 * part[name] for"),
    ],
    ids=["sign", "a little, of one kind of replica"],
)
def test_code_that_makes_other_numbers_is_never_proven_equal(
    dprepro: Dprepro, checkout: Path, before: str, after: str
) -> None:
    edit(checkout, METHOD, before, after)
    said = dprepro(checkout, "equivalence", status=1)
    assert "different" in said
    found = findings(checkout)
    assert [one["found"] for one in found if one["kind"] == "train"] == ["different"]
    assert found[0]["why"]
    assert "toy: 4 replicas (method code)" in dprepro(checkout, "plan")


def test_code_that_reads_differently_is_proven_to_make_the_same_bits(
    dprepro: Dprepro, checkout: Path
) -> None:
    for before, after in (("released", "noised"), ("descended", "stepped")):
        edit(checkout, METHOD, before, after)
    assert "toy: 4 replicas (method code)" in dprepro(checkout, "plan")
    said = dprepro(checkout, "equivalence", "toy")
    assert said.count("same bits") == 2
    found = {one["kind"]: one for one in findings(checkout)}
    assert [one["found"] for one in found.values()] == ["same bits"] * 2
    run_of = json.loads((checkout / "reports/runs/toy.json").read_text())
    assert found["train"]["before"] == run_of["origins"][0]["code"]
    assert found["train"]["revision"] == run_of["origins"][0]["revision"]
    assert found["train"]["replicas"] == 4  # both kinds, private and not, at two seeds
    assert "to train: 0 rows" in dprepro(checkout, "plan")
    assert "0 replicas trained, 4 stand" in dprepro(checkout, "train", "toy")
    assert dprepro(checkout, "equivalence") == ""  # nothing is left to prove
    # neither is anything left of the other checkout
    assert len(run(checkout, "git", "worktree", "list").splitlines()) == 1


def test_code_that_adds_up_in_another_order_is_the_same_to_rounding(dprepro: Dprepro, checkout: Path) -> None:
    edit(checkout, METHOD, DESCENT, DESCENT.replace("value /", "(value + 0.3 * value) / 1.3 /"))
    assert "same to rounding" in dprepro(checkout, "equivalence")
    found = {one["kind"]: one for one in findings(checkout)}
    assert found["train"]["found"] == "same to rounding"
    assert 0 < found["train"]["difference"] <= 1e-5
    assert "0 replicas trained, 4 stand" in dprepro(checkout, "train", "toy")


def test_what_no_commit_made_can_not_be_proven(dprepro: Dprepro, checkout: Path) -> None:
    path = checkout / "reports/runs/toy.json"
    path.write_text(path.read_text().replace('"dirty": false', '"dirty": true'))
    edit(checkout, METHOD, "descended", "stepped")
    assert dprepro(checkout, "equivalence", status=1) == "toy: made by code that no commit here has\n"
    assert findings(checkout) == []


def test_another_rows_commit_serves_where_it_has_the_same_code(dprepro: Dprepro, checkout: Path) -> None:
    """As when a machine trained from a commit of its own that never came here."""
    toy = checkout / "reports/runs/toy.json"
    add_other(checkout)
    here = json.loads(toy.read_text())["origins"][0]["revision"]
    toy.write_text(toy.read_text().replace(here, "0" * 40))
    edit(checkout, METHOD, "descended", "stepped")
    assert dprepro(checkout, "equivalence", "toy").count("same bits") == 2
    assert {one["revision"] for one in findings(checkout)} == {here}


def test_a_commit_serves_whose_code_is_proven_to_make_the_same(dprepro: Dprepro, checkout: Path) -> None:
    """Numbers that came from a lost commit keep up with the code, from proof to proof."""
    edit(checkout, METHOD, "descended", "stepped")
    assert dprepro(checkout, "equivalence", "toy").count("same bits") == 2
    run(checkout, "git", "commit", "--quiet", "--all", "--message", "the proof")
    kept = json.loads((checkout / "reports/runs/toy.json").read_text())
    for folder in ("runs", "evaluations", "histories"):
        shutil.rmtree(checkout / "reports" / folder)
    for stage in ("train", "evaluate"):
        dprepro(checkout, stage, "toy")
    add_other(checkout)
    later = json.loads((checkout / "reports/runs/other.json").read_text())["origins"][0]["revision"]
    kept["origins"][0]["revision"] = "0" * 40
    (checkout / "reports/runs/toy.json").write_text(json.dumps(kept))
    edit(checkout, METHOD, "released", "noised")
    assert dprepro(checkout, "equivalence", "toy").count("same bits") == 2
    made = {one["revision"]: one["before"] for one in findings(checkout) if one["kind"] == "train"}
    assert made[later] != kept["origins"][0]["code"]


def test_data_that_are_not_here_prove_nothing(dprepro: Dprepro, checkout: Path) -> None:
    edit(checkout, METHOD, "descended", "stepped")
    shutil.rmtree(checkout / "data/prepared/toy")
    dprepro(checkout, "equivalence", status=1)
    assert findings(checkout) == []


def test_for_weights_that_are_not_here_others_stand_in(dprepro: Dprepro, checkout: Path) -> None:
    """A pretrained network takes hours, and the steps that are compared may start anywhere."""
    row = PARAMS.partition("  toy:\n    paper")[2].replace("name: lenet5", "name: tf_tutorial")
    row = row.replace("seeds: 2", "seeds: 1")
    params = checkout / "params.yaml"
    before = row.replace("data: toy", "data: letters")
    after = row.replace("data: toy", "data: tuned").replace("layer}", "layer, trainable: linear}")
    text = params.read_text().replace("kmnist: {train: 20", "kmnist: {train: 60")
    text = text.replace(
        "rows:\n",
        "  letters: {raw: kmnist, train: 40, validation: 10, public: {raw: kmnist, count: 8}}\n"
        "starts:\n  tuned: {data: toy, row: before, features: true}\nrows:\n",
    )
    params.write_text(f"{text}  before:\n    paper{before}  after:\n    paper{after}")
    run(checkout, "git", "commit", "--quiet", "--all", "--message", "a row that starts from another")
    for told in ("fetch kmnist", "prepare letters", "prepare toy", "train before", "start tuned"):
        dprepro(checkout, *told.split())
    for stage in ("train", "evaluate"):
        dprepro(checkout, stage, "after")
    edit(checkout, METHOD, "descended", "stepped")
    shutil.rmtree(checkout / "data/prepared/tuned")
    shutil.rmtree(checkout / "runs/before")
    assert dprepro(checkout, "equivalence", "after").count("same bits") == 2
