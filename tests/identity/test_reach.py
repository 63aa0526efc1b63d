"""What an edit reaches: the stages of params.yaml whose digest it moves."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from test_contributing import FILES

from pipeline import params
from pipeline.errors import UserError
from pipeline.extensions import Extension
from pipeline.identity import entries, versions
from pipeline.methods.rooms import method_settings
from pipeline.models import model
from tests.reporting.kinds import CLAIM, FIGURE, PAPER

ROOT = Path(__file__).parents[2]
OWN = params.load(ROOT / "params.yaml")


def flat(stages: dict[str, Any]) -> dict[str, str]:
    """Digest of every stage: 'train@ROW', 'report'."""
    every: dict[str, str] = {}
    for stage, entry in stages.items():
        keyed = {"": entry} if isinstance(entry, str) else entry
        every |= {f"{stage}@{key}".rstrip("@"): digest for key, digest in keyed.items()}
    return every


HERE = flat(entries.entries(OWN))


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The package, the commands and the settings, somewhere else."""
    for folder in ("pipeline", "stages"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "params.yaml", tmp_path)
    shutil.copytree(ROOT / "papers", tmp_path / "papers")
    shutil.copytree(ROOT / "reports/searches", tmp_path / "reports/searches")
    return tmp_path


def edit(path: Path, before: str, after: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert before in text, f"{path}: no {before!r}"
    path.write_text(text.replace(before, after), encoding="utf-8")


def moved_in(copy: Path) -> set[str]:
    """Stages whose digest is another one in the copy."""
    line = [sys.executable, "-m", "stages", "identity"]
    done = subprocess.run(line, cwd=copy, env={"PYTHONPATH": str(copy)}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return moved(flat(json.loads((copy / entries.PATH).read_text())))


def moved(there: dict[str, str]) -> set[str]:
    assert there.keys() == HERE.keys()
    return {stage for stage in HERE if there[stage] != HERE[stage]}


def test_what_a_killed_import_leaves_moves_nothing(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python writes bytecode beside its place, under a name that ends in a number."""
    left = copy / "pipeline/reporting/__pycache__/words.cpython-311.pyc.140234"
    left.parent.mkdir(exist_ok=True)
    left.write_bytes(b"half")
    monkeypatch.setattr(entries, "PACKAGE", copy / "pipeline")
    assert moved(flat(entries.entries(OWN))) == set()


def of_rows(*stages: str, method: str | None = None, model: str | None = None) -> set[str]:
    rows = [key for key, row in OWN.rows.items() if method in (None, row.method)]
    rows = [key for key in rows if model in (None, OWN.rows[key].model.name)]
    assert rows
    return {f"{stage}@{key}" for stage in stages for key in rows}


def test_a_renamed_variable_in_the_engine_and_what_is_new_move_no_number(copy: Path) -> None:
    """Nor do a method's room, a model, and a paper with its claim and its figure."""
    edit(copy / "pipeline/training/loop.py", "stopped_by", "signal")
    new = {copy / name: code for name, code in FILES.items()}
    new |= {copy / "lab/claims/even.py": CLAIM, copy / "lab/figures/toy.py": FIGURE}
    new |= {copy / "papers/toys.yaml": PAPER}
    edit(copy / "params.yaml", "\nraw:\n", "\ncode: [lab]\nraw:\n")
    for path, text in new.items():
        assert not path.exists()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert moved_in(copy) == {"report", "publish"}


def test_a_methods_version_moves_its_rows_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(method_settings()["tan"], "version", 2)
    assert moved(flat(entries.entries(OWN))) == of_rows("train", "audit", method="tan") | {"report"}


def test_a_models_version_moves_its_rows_alone(copy: Path) -> None:
    edit(copy / "pipeline/models/resnet18.py", "VERSION = 1", "VERSION = 2")
    assert moved_in(copy) == of_rows("train", "audit", model="resnet18") | {"report"}


@pytest.mark.parametrize(
    ("name", "stages"),
    [("MEASURING", ("evaluate",)), ("AUDITING", ("audit",)), ("PREPARING", ("prepare",))],
)
def test_other_versions_move_their_stage(
    name: str, stages: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(versions, name, getattr(versions, name) + 1)
    reached = {stage for stage in moved(flat(entries.entries(OWN))) if stage != "report"}
    assert reached == {stage for stage in HERE if stage.startswith(tuple(f"{one}@" for one in stages))}


def test_a_models_version_is_a_whole_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "toy.py"
    monkeypatch.setattr(model, "extensions", lambda kind: {"toy": Extension("toy", path)})
    monkeypatch.setattr(model, "architectures", model.architectures.__wrapped__)
    for text, declared in (("build = None\n", 1), ("build = None\nVERSION = 7\n", 7)):
        path.write_text(text)
        assert model.version("toy") == declared
    for wrong in ("0", "True", "'2'", "one()"):
        path.write_text(f"build = None\nVERSION = {wrong}\n")
        with pytest.raises(UserError, match=r"VERSION: .*; allowed: a whole number above 0"):
            model.version("toy")
