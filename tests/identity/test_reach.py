"""What an edit reaches: the stages of params.yaml whose digest it moves."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dprepro.errors import UserError
from dprepro.pipeline import params
from dprepro.pipeline.extensions import Extension
from dprepro.pipeline.identity import entries, validity
from dprepro.pipeline.methods.settings import method_settings
from dprepro.pipeline.models import model
from tests.checkout import copy_code
from tests.commands import typed
from tests.docs.blocks import WRITTEN, edit, lay

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
    copy_code(tmp_path)
    for folder in ("papers", "reports/searches"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "params.yaml", tmp_path)
    return tmp_path


@pytest.fixture
def moved_in(copy: Path) -> Callable[[], set[str]]:
    """Stages whose digest is another one in the copy."""

    def moved_in() -> set[str]:
        typed("dprepro identity", copy, copy)
        return moved(flat(json.loads((copy / entries.PATH).read_text())))

    return moved_in


def moved(there: dict[str, str]) -> set[str]:
    assert there.keys() == HERE.keys()
    return {stage for stage in HERE if there[stage] != HERE[stage]}


def of_rows(*stages: str, method: str | None = None, model: str | None = None) -> set[str]:
    rows = [key for key, row in OWN.rows.items() if method in (None, row.method)]
    rows = [key for key in rows if model in (None, OWN.rows[key].model.name)]
    assert rows
    return {f"{stage}@{key}" for stage in stages for key in rows}


def test_a_renamed_variable_in_the_engine_and_what_is_new_move_no_number(
    copy: Path, moved_in: Callable[[], set[str]]
) -> None:
    """Nor do a method's room, a model, and a paper."""
    edit(copy / "pipeline/training/loop.py", "stopped_by", "signal")
    edit(copy / "params.yaml", "\nraw:\n", "\ncode: [lab]\nraw:\n")
    new = {"papers/toys.yaml": "title: A paper of toys\n", **WRITTEN}
    assert not any((copy / name).exists() for name in new)
    lay(copy, new)
    assert moved_in() == {"report", "publish"}


def test_a_search_that_is_run_again_moves_the_ledgers_of_its_rows_and_the_report(
    copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ledgers have its spending, also if it chooses as before, and also if no row names it."""
    monkeypatch.chdir(copy)
    searches, named = copy / "reports/searches", {row.search for row in OWN.rows.values()}
    other = next(path.stem for path in sorted(searches.glob("*.json")) if path.stem not in named)
    for name in ("sander-mnist", other):
        path = searches / f"{name}.json"
        before, over = path.read_text(), json.loads(path.read_text())["row"]
        edit(path, '"seconds": ', '"seconds": 1')
        expected = {f"ledger@{key}" for key, row in OWN.rows.items() if name == row.search or key == over}
        assert moved(flat(entries.entries(OWN))) == {*expected, "report"} != {"report"}
        path.write_text(before)


def test_another_plan_is_drawn_and_trains_nothing(tmp_path: Path) -> None:
    """The report tells what was trained as planned."""
    shutil.copy(ROOT / "params.yaml", tmp_path)
    edit(tmp_path / "params.yaml", "both are ours: a cosine over 10 epochs", "both are ours: 12 epochs")
    assert moved(flat(entries.entries(params.load(tmp_path / "params.yaml")))) == {"report"}


def test_a_methods_version_moves_its_rows_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(method_settings()["tan"], "version", 2)
    assert moved(flat(entries.entries(OWN))) == of_rows("train", "audit", method="tan") | {"report"}


def test_a_models_version_moves_its_rows_alone(copy: Path, moved_in: Callable[[], set[str]]) -> None:
    edit(copy / "pipeline/models/wrn16_4.py", "VERSION = 1", "VERSION = 2")
    assert moved_in() == of_rows("train", "audit", model="wrn16_4") | {"report"}


@pytest.mark.parametrize(
    ("name", "stages"),
    [("MEASURING", ("evaluate",)), ("AUDITING", ("audit",)), ("PREPARING", ("prepare",))],
)
def test_other_versions_move_their_stage(
    name: str, stages: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(validity, name, getattr(validity, name) + 1)
    reached = {stage for stage in moved(flat(entries.entries(OWN))) if stage != "report"}
    assert reached == {
        stage for stage in HERE if stage.startswith(tuple(f"{stage_name}@" for stage_name in stages))
    }


def test_a_models_version_is_a_whole_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "toy.py"
    monkeypatch.setattr(model, "extensions", lambda kind: {"toy": Extension("toy", path)})
    monkeypatch.setattr(model, "architectures", model.architectures.__wrapped__)
    for text, declared in (("", 1), ("VERSION = 7\n", 7), ("VERSION: int = 8\n", 8)):
        path.write_text("build = None\n" + text)
        assert model.version("toy") == declared
    for wrong in ("0", "True", "'2'", "one()"):
        path.write_text(f"build = None\nVERSION = {wrong}\n")
        with pytest.raises(UserError, match=r"VERSION: .*; allowed: a whole number above 0"):
            model.version("toy")
    path.write_text("def build(model, shape:\n")
    with pytest.raises(UserError, match=r"toy\.py: line 1: .*; needed: Python"):
        model.version("toy")
