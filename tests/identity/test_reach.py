"""Which rows an edit of the code reaches: `dprepro identity` in a copy, over the rows of params.yaml."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from reporting.test_kinds import CLAIM, FIGURE, PAPER
from test_contributing import FILES

from pipeline import params

ROOT = Path(__file__).parents[2]
OWN = params.load(ROOT / "params.yaml")


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The package, the commands and the settings, somewhere else."""
    for folder in ("pipeline", "stages"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "params.yaml", tmp_path)
    return tmp_path


def identity(checkout: Path) -> dict[str, str]:
    """Digest of every stage of params.yaml, by the code of a checkout: 'train@ROW', 'report'."""
    environment = {**os.environ, "PYTHONPATH": str(checkout)}
    line = [sys.executable, "-m", "stages", "identity"]
    done = subprocess.run(line, cwd=checkout, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads((checkout / "reports/identity.json").read_text())
    stages: dict[str, str] = {}
    for stage, entry in found.items():
        stages |= {stage: entry} if isinstance(entry, str) else {f"{stage}@{k}": v for k, v in entry.items()}
    return stages


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The digests by the code as it is."""
    checkout = tmp_path_factory.mktemp("unchanged")
    for name in ("pipeline", "stages", "params.yaml"):
        (checkout / name).symlink_to(ROOT / name)
    return identity(checkout)


def edit(path: Path, before: str, after: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert before in text, f"{path}: no {before!r}"
    path.write_text(text.replace(before, after), encoding="utf-8")


def moved(copy: Path, here: dict[str, str]) -> set[str]:
    """Stages whose digest is another one in the copy."""
    there = identity(copy)
    assert there.keys() == here.keys()
    return {stage for stage in here if there[stage] != here[stage]}


def of_rows(stages: tuple[str, ...], method: str | None = None) -> set[str]:
    rows = [key for key, row in OWN.rows.items() if method in (None, row.method)]
    return {f"{stage}@{key}" for stage in stages for key in rows}


def test_every_stage_has_its_digest(here: dict[str, str]) -> None:
    assert of_rows(("train", "evaluate", "ledger", "audit")) <= here.keys()
    assert {f"account@{key}" for key in OWN.accounts} <= here.keys()
    assert {"report", "publish"} <= here.keys()


def test_words_in_the_engine_move_nothing(copy: Path, here: dict[str, str]) -> None:
    loop, checkpoints = (copy / f"pipeline/training/{name}.py" for name in ("loop", "checkpoints"))
    edit(loop, '"""Train replicas that share', '"""Trains replicas that share')
    edit(loop, "    validation = data.splits[", "    # what it is judged on\n    validation = data.splits[")
    edit(checkpoints, "damaged; delete it", "damaged: delete it")
    edit(copy / "pipeline/privacy/randomness.py", '"""Random streams', '"""The random streams')
    assert moved(copy, here) == set()


def test_what_is_new_moves_no_other_row(copy: Path, here: dict[str, str]) -> None:
    """A method's room, a model, a paper with its claim and its figure: nobody else reaches them."""
    reporting = copy / "pipeline/reporting"
    new = {copy / name: code for name, code in FILES.items()}
    new |= {reporting / "claims/even.py": CLAIM, reporting / "figures/toy.py": FIGURE}
    new |= {reporting / "papers/toys.yaml": PAPER}
    for path, text in new.items():
        assert not path.exists()
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert moved(copy, here) == {"report", "publish"}


def test_a_methods_line_moves_its_rows_alone(copy: Path, here: dict[str, str]) -> None:
    edit(
        copy / "pipeline/methods/batch_clipping/method.py",
        "count = self.first.sets",
        "count = 2 * self.first.sets",
    )
    assert moved(copy, here) == of_rows(("train", "evaluate", "audit"), "batch_clipping")


def test_a_models_line_moves_its_rows_alone(copy: Path, here: dict[str, str]) -> None:
    edit(copy / "pipeline/models/resnet18.py", "kernel // 2", "kernel // 3")
    rows = [key for key, row in OWN.rows.items() if row.model.name == "resnet18"]
    assert rows
    assert moved(copy, here) == {f"{stage}@{key}" for stage in ("train", "evaluate", "audit") for key in rows}


def test_the_engine_moves_every_row_and_no_ledger(copy: Path, here: dict[str, str]) -> None:
    edit(copy / "pipeline/training/loop.py", "range(last.done, steps)", "range(last.done, steps + 1)")
    found = moved(copy, here)
    assert of_rows(("train",)) <= found
    assert not any(stage.startswith(("ledger@", "account@", "prepare@", "fetch@")) for stage in found)


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("privacy/accounting.py", "delta_error=delta / 1000", "delta_error=delta / 2000"),
        ("ledgers/ledger.py", "least = min(epsilons", "least = max(epsilons"),
    ],
)
def test_an_accountant_moves_ledgers_and_trains_nothing(
    copy: Path, here: dict[str, str], name: str, before: str, after: str
) -> None:
    edit(copy / "pipeline" / name, before, after)
    assert moved(copy, here) == of_rows(("ledger",)) | {f"account@{key}" for key in OWN.accounts}


def test_a_setting_moves_its_row_and_a_label_only_the_report(copy: Path, here: dict[str, str]) -> None:
    settings = copy / "params.yaml"
    found = OWN.rows["davody-t5-ln-lenet5"]
    edit(settings, f"label: {found.label}", f"label: Another {found.label}")
    assert moved(copy, here) == {"report", "publish"}
