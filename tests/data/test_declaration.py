"""A changed declaration of data is noticed by every command that compares or trains, prepared or not."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dprepro.pipeline import params, verification
from dprepro.pipeline.cluster import tasks
from dprepro.pipeline.data.declaration import changed_key
from dprepro.pipeline.data.prepared import manifest_here
from dprepro.pipeline.identity.entries import entries
from dprepro.pipeline.results import records
from tests import laboratory
from tests.laboratory import new_data, new_row, refused, run, train


def declare(**changes: Any) -> None:
    """Change the data's entry of params.yaml."""
    laboratory.declare(lambda it: it["data"]["mine"].update(changes))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A laboratory with one row, trained and measured on 180 examples."""
    with laboratory.laboratory(tmp_path_factory.mktemp("made")) as folder:
        new_data(400)
        declare(train=180)
        run("prepare mine")
        new_row("r --data mine --model lenet_300_100 --method dpsgd --epsilon 8 --epochs 1")
        train("r")
    return folder


@pytest.fixture
def trained(made: Path, tmp_path: Path) -> Iterator[Path]:
    """A copy of it of the test's own."""
    with laboratory.copy_of(made, tmp_path):
        yield tmp_path


def test_a_changed_declaration_is_noticed_before_and_after_data_are_prepared(trained: Path) -> None:
    assert "nothing to train" in run("plan r")
    assert "1 row with valid results" in run("status")
    declare(train=240)
    assert "r: 1 training (data);" in run("plan r")
    assert "1 changed (data): r" in run("status")
    assert tasks.missing_data(params.load(), ["r"]) == ["prepare@mine"]
    assert [task.name for task in tasks.todo(params.load(), ["r"])] == ["r"]
    line = refused("train r")
    assert line == (
        "data/prepared/mine: prepared with another train than params.yaml has now; run `dprepro prepare mine`"
    )
    run("prepare mine")
    assert "r: 1 training (data);" in run("plan r")
    run("train r")
    assert "nothing to train" in run("plan r")
    assert records.read_run("r").origins[0].examples == 240


def test_a_clone_without_data_notices_it_too(trained: Path) -> None:
    shutil.rmtree("data/prepared")
    assert "nothing to train" in run("plan r")
    declare(seed=3)
    assert "r: 1 training (data);" in run("plan r")
    declare(seed=0)
    # a record from before declarations were noted is known by its number of examples
    run_here = records.read_run("r")
    (first,) = run_here.trainings
    older = first.model_copy(update={"origin": first.origin.model_copy(update={"declared": None})})
    records.write(run_here.model_copy(update={"trainings": (older,)}))
    assert "nothing to train" in run("plan r")
    declare(train=240)
    assert "r: 1 training (data);" in run("plan r")


def test_each_key_that_decides_the_splits_is_compared(trained: Path) -> None:
    manifest, before = manifest_here("mine") or {}, Path("params.yaml").read_text()
    assert changed_key(manifest, "mine", params.load()) is None
    changes: dict[str, Any] = {
        "train": 100,
        "validation": 7,
        "public": {"raw": "mine", "count": 3},
        "seed": 1,
    }
    for key, value in changes.items():
        declare(**{key: value})
        assert changed_key(manifest, "mine", params.load()) == key
        Path("params.yaml").write_text(before)


def test_a_changed_declaration_of_own_files_is_noticed(trained: Path) -> None:
    """The files stay the same; test part, names of classes or the array of labels change."""
    before = entries(params.load())["prepare"]["mine"]
    classes = [f"c{each}" for each in range(10)]
    changes: dict[str, Any] = {"test": 50, "seed": 1, "classes": classes, "labels": "other"}
    for key in changes:
        text = Path("params.yaml").read_text()
        laboratory.declare(lambda it: it["own"]["mine"].update({key: changes[key]}))  # noqa: B023
        line = (
            "data/prepared/mine: prepared with another declaration of mine than params.yaml has now; run "
            "`dprepro prepare mine`"
        )
        for command in ("train r", "evaluate r", "export r out"):
            assert refused(command) == line
        (wrong,) = [found for found in verification.verify(params.load()) if "prepared" in found.subject]
        assert wrong.wrong == line
        assert entries(params.load())["prepare"]["mine"] != before
        Path("params.yaml").write_text(text)
    # the place of the files decides nothing
    shutil.move("mine.npz", "moved.npz")
    laboratory.declare(lambda it: it["own"]["mine"].update(path="moved.npz"))
    assert entries(params.load())["prepare"]["mine"] == before
    assert "0 trained" in run("train r")
