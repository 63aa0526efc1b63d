"""One of each run, whatever fails, is killed or is written twice."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient
from mlflow.entities import Run
from mlflow.exceptions import MlflowException

from pipeline.tracking import upserting
from pipeline.tracking.drawing import Drawn
from pipeline.tracking.upserting import DIGEST, PUBLICATION, Upsert, is_whole, publications

DATA = {"name": "digits", "digest": "1", "source_type": "local", "source": "{}", "profile": "{}"}


class Row:
    """A row with two runs below it, in an experiment of its own, as several publishers have it."""

    def __init__(self, path: Path) -> None:
        self.client = MlflowClient(f"sqlite:///{path}")
        self.experiment = self.client.create_experiment(
            "paper", artifact_location=(path.parent / "files").as_uri()
        )

    def drawn(self, accuracy: float = 0.5) -> Drawn:
        below = tuple(
            Drawn(name, {"row": "a"}, metrics=(("accuracy", accuracy, 0, 0),), data_set=DATA) for name in "bc"
        )
        return Drawn("a", {"row": "a", "kind": "row"}, below=below, digests={"record": accuracy})

    def publish(self, accuracy: float = 0.5, alone: bool = False) -> bool:
        """Whether it wrote."""
        return bool(Upsert(self.client, alone).bring({"a": (self.experiment, self.drawn(accuracy))}))

    def runs(self) -> list[Run]:
        return list(self.client.search_runs([self.experiment]))

    def begin(self, **tags: str) -> str:
        """A run such as somebody else makes."""
        return str(self.client.create_run(self.experiment, tags={"row": "a", **tags}).info.run_id)

    def assert_there_once(self, accuracy: float = 0.5) -> None:
        there = publications(self.client, self.experiment)["a"]
        assert len(there) == 1
        assert is_whole(there, self.drawn(accuracy))
        head = next(run for run in self.runs() if DIGEST in run.data.tags).info.run_id
        parents = [run.data.tags.get("mlflow.parentRunId") for run in self.runs()]
        assert sorted(parents, key=str) == sorted([None, head, head], key=str)


@pytest.fixture
def row(tmp_path: Path, empty_store: Path, monkeypatch: pytest.MonkeyPatch) -> Row:
    monkeypatch.setattr(upserting, "PATIENCE", 0.6)
    monkeypatch.setattr(upserting, "PAUSE", 0.1)
    return Row(Path(shutil.copy(empty_store, tmp_path / "store.db")))


def test_what_is_there_stays_as_it_is_and_what_changed_replaces_it(row: Row) -> None:
    assert row.publish()
    before = [run.to_dictionary() for run in row.runs()]
    assert not row.publish()
    assert [run.to_dictionary() for run in row.runs()] == before
    assert row.publish(0.7)
    row.assert_there_once(0.7)


@pytest.mark.parametrize(
    ("stop_at", "alone"),
    [
        *((call, False) for call in ("create_run", "log_batch", "log_inputs", "log_dict", "set_terminated")),
        *(("set_tag", alone) for alone in (False, True)),
    ],
)
def test_a_row_cut_short_is_made_anew(
    row: Row, monkeypatch: pytest.MonkeyPatch, stop_at: str, alone: bool
) -> None:
    original, calls = getattr(MlflowClient, stop_at), []

    def stops(*arguments: Any, **named: Any) -> object:
        calls.append(arguments)
        if len(calls) == (1 if stop_at in ("log_dict", "set_tag") else 2):
            raise KeyboardInterrupt
        return original(*arguments, **named)

    with monkeypatch.context() as patch:
        patch.setattr(MlflowClient, stop_at, stops)
        with pytest.raises(KeyboardInterrupt):
            row.publish(alone=alone)
    assert row.runs()
    assert row.publish(alone=alone)
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


def test_a_run_that_somebody_deleted_is_made_anew(row: Row) -> None:
    row.publish()
    row.client.delete_run(next(run for run in row.runs() if run.info.run_name == "b").info.run_id)
    assert row.publish()
    row.assert_there_once()


def test_doubles_go_those_of_older_versions_too(row: Row) -> None:
    row.publish()
    (digest,) = {run.data.tags[DIGEST] for run in row.runs() if DIGEST in run.data.tags}
    row.begin(**{DIGEST: digest})
    row.begin(**{DIGEST: digest, PUBLICATION: "000000-0"})
    row.begin(**{PUBLICATION: "000009-0"})  # its writer is dead
    assert not row.publish()
    row.assert_there_once()


def test_who_writes_is_waited_for(row: Row, monkeypatch: pytest.MonkeyPatch) -> None:
    create, others = MlflowClient.create_run, list[Any]()

    def meanwhile(self: MlflowClient, *arguments: Any, **named: Any) -> object:
        """When the first run is begun, another publisher looks."""
        made = create(self, *arguments, **named)
        if not others:
            others.append(Upsert(self, alone=False))
            assert not others[0]._write(row.experiment, "a", row.drawn())
        return made

    monkeypatch.setattr(MlflowClient, "create_run", meanwhile)
    assert row.publish()
    row.assert_there_once()


@pytest.mark.parametrize(("finished", "last"), [(False, 0.5), (True, 0.7)])
def test_of_two_records_the_one_that_was_finished_last_stays(
    row: Row, monkeypatch: pytest.MonkeyPatch, finished: bool, last: float
) -> None:
    tag, others = MlflowClient.set_tag, list[Any]()

    def meanwhile(self: MlflowClient, run: str, name: str, value: object) -> None:
        """Somebody publishes another record, when we have just finished, or takes us for dead before."""
        if finished or others:
            tag(self, run, name, value)
        if not others:
            others.append(run)
            monkeypatch.setattr(upserting, "PATIENCE", 0.0)
            assert row.publish(0.7)
            monkeypatch.setattr(upserting, "PATIENCE", 0.6)
            if not finished:
                tag(self, run, name, value)

    monkeypatch.setattr(MlflowClient, "set_tag", meanwhile)
    row.publish()
    row.assert_there_once(last)


def test_where_both_of_two_were_deleted_one_is_written_again(
    row: Row, monkeypatch: pytest.MonkeyPatch
) -> None:
    row.publish()
    row.begin(**{PUBLICATION: "000000-0"})
    others_go, done = Upsert._others_go, list[Any]()

    def meanwhile(self: Upsert, there: upserting.Publications) -> bool:
        """Somebody deletes ours, when we have just deleted theirs."""
        gone = others_go(self, there)
        if gone and not done:
            done.append(gone)
            for run in row.runs():
                row.client.delete_run(run.info.run_id)
        return gone

    monkeypatch.setattr(Upsert, "_others_go", meanwhile)
    assert row.publish()
    row.assert_there_once()


@pytest.mark.parametrize(("failures", "ends_well"), [(2, True), (100, False)])
def test_a_write_that_fails_is_tried_again_and_leaves_nothing(
    row: Row, monkeypatch: pytest.MonkeyPatch, failures: int, ends_well: bool
) -> None:
    log, left = MlflowClient.log_inputs, [None] * failures

    def fails(self: MlflowClient, *arguments: Any, **named: Any) -> None:
        """As where two make the same data set in the same moment."""
        if left:
            left.pop()
            raise MlflowException("UNIQUE constraint failed: datasets")
        log(self, *arguments, **named)

    monkeypatch.setattr(MlflowClient, "log_inputs", fails)
    if ends_well:
        assert row.publish()
        row.assert_there_once()
    else:
        with pytest.raises(MlflowException, match="UNIQUE"):
            row.publish()
