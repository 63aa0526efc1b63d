"""One of each run, whatever fails, is killed or is written twice."""

import shutil
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from queue import Queue
from threading import Thread
from typing import Any

import pytest
from mlflow import MlflowClient
from mlflow.entities import Run

from dprepro.pipeline.tracking import store
from dprepro.pipeline.tracking.publishing import DIGEST, is_whole, runs_by_row, sync_rows
from dprepro.pipeline.tracking.runs import RunSpec

DATA = {"name": "digits", "digest": "1", "source_type": "local", "source": "{}", "profile": "{}"}


class Row:
    """A row with two runs below it, in an experiment of its own."""

    def __init__(self, path: Path) -> None:
        self.client = MlflowClient(f"sqlite:///{path}")
        self.experiment = self.client.create_experiment(
            "paper", artifact_location=(path.parent / "files").as_uri()
        )

    def drawn(self, accuracy: float = 0.5) -> RunSpec:
        below = tuple(
            RunSpec(name, {"row": "a"}, metrics=(("accuracy", accuracy, 0, 0),), data_set=DATA)
            for name in "bc"
        )
        return RunSpec("a", {"row": "a", "kind": "row"}, below=below, digests={"record": accuracy})

    def publish(self, accuracy: float = 0.5) -> bool:
        """Whether it wrote."""
        return bool(sync_rows(self.client, {"a": (self.experiment, self.drawn(accuracy))}))

    def runs(self) -> list[Run]:
        return list(self.client.search_runs([self.experiment]))

    def named(self, name: str) -> Run:
        return next(run for run in self.runs() if run.info.run_name == name)

    def head(self) -> Run:
        return next(run for run in self.runs() if DIGEST in run.data.tags)

    def assert_there_once(self) -> None:
        assert is_whole(runs_by_row(self.client, self.experiment)["a"], self.drawn())
        head = self.head().info.run_id
        parents = [run.data.tags.get("mlflow.parentRunId") for run in self.runs()]
        assert sorted(parents, key=str) == sorted([None, head, head], key=str)


@pytest.fixture
def row(tmp_path: Path, empty_store: Path) -> Row:
    return Row(Path(shutil.copy(empty_store, tmp_path / "store.db")))


def test_peoples_own_words_stay(row: Row) -> None:
    row.publish()
    for run in row.runs():
        row.client.set_tag(run.info.run_id, "mlflow.note.content", "looks odd")
        row.client.set_tag(run.info.run_id, "seen by", "me")
    assert not row.publish()


@pytest.mark.parametrize(
    "stop_at", ["create_run", "log_batch", "log_inputs", "log_dict", "set_terminated", "set_tag"]
)
def test_a_row_cut_short_leaves_the_old_runs_and_is_made_anew(
    row: Row, monkeypatch: pytest.MonkeyPatch, stop_at: str
) -> None:
    row.publish(0.7)
    before = {run.info.run_id for run in row.runs()}
    original, calls = getattr(MlflowClient, stop_at), []

    def stops(*arguments: Any, **named: Any) -> object:
        calls.append(arguments)
        if len(calls) == (1 if stop_at in ("log_dict", "set_tag") else 2):
            raise KeyboardInterrupt
        return original(*arguments, **named)

    with monkeypatch.context() as patch:
        patch.setattr(MlflowClient, stop_at, stops)
        with pytest.raises(KeyboardInterrupt):
            row.publish()
    assert before < {run.info.run_id for run in row.runs()}
    assert row.publish()
    row.assert_there_once()


def test_a_deletion_cut_short_is_finished(row: Row, monkeypatch: pytest.MonkeyPatch) -> None:
    row.publish()
    delete, calls = MlflowClient.delete_run, []

    def stops(self: MlflowClient, run: str) -> None:
        calls.append(run)
        if len(calls) == 2:
            raise KeyboardInterrupt
        delete(self, run)

    with monkeypatch.context() as patch:
        patch.setattr(MlflowClient, "delete_run", stops)
        with pytest.raises(KeyboardInterrupt):
            row.publish(0.7)
    # back to the old record: the runs left of it must not pass for the whole row
    assert row.publish()
    row.assert_there_once()


@pytest.mark.parametrize(
    "damage",
    [
        lambda row, head: row.client.delete_run(row.named("b").info.run_id),
        lambda row, head: row.client.create_run(row.experiment, tags={**head.data.tags, "row": "a"}),
        lambda row, head: row.client.create_run(row.experiment, tags={"row": "a"}),
        lambda row, head: row.client.set_tag(head.info.run_id, "kind", "other"),
    ],
    ids=["a run deleted", "the row twice", "a run too many", "a tag changed"],
)
def test_a_row_that_somebody_changed_is_made_anew(row: Row, damage: Callable[[Row, Run], object]) -> None:
    row.publish()
    damage(row, row.head())
    assert row.publish()
    row.assert_there_once()


def test_a_second_publisher_waits_and_says_so(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: Queue[str] = Queue()

    class Stderr(StringIO):
        def write(self, text: str) -> int:
            said.put(text)
            return len(text)

    monkeypatch.setattr("sys.stderr", Stderr())
    order: list[str] = []

    def second() -> None:
        with store.opened() as client:
            order.append("second")
            client.create_experiment("second")

    with store.opened() as client:
        thread = Thread(target=second)
        thread.start()
        assert (
            said.get(timeout=120)
            == f"{root / store.STORE}: another publisher is writing; waiting for it to finish"
        )
        order.append("first")
        client.create_experiment("first")
    thread.join(120)
    assert order == ["first", "second"]
    names = {experiment.name for experiment in MlflowClient(store.address()).search_experiments()}
    assert {"first", "second"} <= names
