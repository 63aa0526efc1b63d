"""Several who publish to one store at once leave one of each run, and none of them fails."""

import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path

import postgres
import pytest
from mlflow import MlflowClient
from mlflow.entities import Run
from publishers import ROWS, RUNS, at_once, small
from reporting.made_up import dpsgd as example

from pipeline.tracking import families, keeping
from pipeline.tracking.families import DIGEST, PUBLISHED
from pipeline.tracking.publishing import declared, publish, unpublished
from pipeline.tracking.store import STORE_ENV


def runs(address: str) -> list[Run]:
    client = MlflowClient(address)
    experiment = client.get_experiment_by_name("davody2020")
    assert experiment is not None
    return list(client.search_runs([experiment.experiment_id], max_results=1000))


def one_of_each(address: str) -> Callable[[int], None]:
    """Fails unless the store holds every run of the newest records, once; and drew it in this round."""
    before: set[str] = set()

    def check(_: int) -> None:
        found = runs(address)
        assert Counter(run.data.tags["row"] for run in found) == RUNS
        assert len({run.info.run_name for run in found}) == sum(RUNS.values())
        there = families.grouped(found)
        assert there.strays == ()
        heads = [family.head for family in there.families]
        assert sorted(head.data.tags["row"] for head in heads) == sorted(ROWS)
        assert all(DIGEST in head.data.tags for head in heads)
        now = {run.info.run_id for run in found}
        assert not now & before
        before.update(now)

    return check


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    if reason := postgres.missing():
        said = f"{reason}: NOTHING WAS CHECKED AGAINST POSTGRESQL"
        warnings.warn(said, stacklevel=1)  # a skip alone is one letter in pytest's output
        pytest.skip(said)
    with postgres.running(*postgres.FAST) as address:
        yield address


def test_two_on_postgresql_ten_times_in_a_row(database: str, tmp_path: Path) -> None:
    # the first time round the database is empty, and the two make its tables
    at_once(database, 2, 10, tmp_path, one_of_each(database))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """An MLflow server of the test's own."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    store = tmp_path / "server"
    store.mkdir()
    command = [sys.executable, "-m", "mlflow", "server", "--workers", "1", "--port", str(port)]
    command += ["--backend-store-uri", f"sqlite:///{store}/mlflow.db"]
    command += ["--artifacts-destination", str(store / "files")]
    environment = {
        **os.environ,
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
        "MLFLOW_DISABLE_TELEMETRY": "true",
    }
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    address = f"http://127.0.0.1:{port}"
    try:
        until = time.monotonic() + 120
        while True:
            try:
                urllib.request.urlopen(f"{address}/health", timeout=5).close()
                break
            except OSError:
                assert process.poll() is None, "the server ended"
                assert time.monotonic() < until
                time.sleep(0.3)
        yield address
    finally:
        os.killpg(process.pid, 15)
        process.wait(30)


def test_three_on_a_server_that_has_no_lock(server: str, tmp_path: Path) -> None:
    at_once(server, 3, 3, tmp_path, one_of_each(server))


@pytest.fixture
def without_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, empty_store: Path) -> str:
    """A store whose publishers don't know of each other, as a server's don't, with a record to publish."""
    shutil.copy(empty_store, tmp_path / "store.db")
    address = f"sqlite:///{tmp_path}/store.db"
    monkeypatch.setenv(STORE_ENV, address)
    monkeypatch.setattr("pipeline.tracking.publishing.has_turns", lambda _: False)
    monkeypatch.setattr("pipeline.tracking.store.one_at_a_time", lambda _: nullcontext())
    monkeypatch.setattr(keeping, "PATIENCE", 1.0)
    example.put(small(example.LAYER, example.settings()), tmp_path)
    return address


def test_what_another_finished_meanwhile_replaces_ours(
    without_turns: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = example.settings()
    found = declared(settings, tmp_path)
    end, others = MlflowClient.set_terminated, []

    def meanwhile(self: MlflowClient, run: str, **named: object) -> None:
        """When the first run is done somebody else begins and finishes, and takes ours for a dead one's."""
        if not others:
            others.append(run)
            publish(found, settings, tmp_path)
        end(self, run, **named)

    monkeypatch.setattr(MlflowClient, "set_terminated", meanwhile)
    done = publish(found, settings, tmp_path)
    assert others
    assert done.unchanged == (example.LAYER,)  # the other's
    left = families.grouped(runs(without_turns))
    assert (len(left.families), left.strays) == (1, ())
    assert unpublished(found, settings, tmp_path) == []


def test_who_stopped_writing_is_taken_for_dead(
    without_turns: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = example.settings()
    found = declared(settings, tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(MlflowClient, "log_artifacts", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt()))
        with pytest.raises(KeyboardInterrupt):
            publish(found, settings, tmp_path)
    assert len(runs(without_turns)) == RUNS[example.LAYER]
    assert publish(found, settings, tmp_path).written == (example.LAYER,)
    left = families.grouped(runs(without_turns))
    assert (len(left.families), left.strays) == (1, ())


def test_doubles_that_are_there_are_cleared(without_turns: str, tmp_path: Path) -> None:
    settings = example.settings()
    found = declared(settings, tmp_path)
    publish(found, settings, tmp_path)
    client = MlflowClient(without_turns)
    kept = families.grouped(runs(without_turns)).families[0].head
    older = {**kept.data.tags, PUBLISHED: "2000"}
    for tags in (older, {name: value for name, value in older.items() if name != DIGEST}):
        client.create_run(kept.info.experiment_id, tags=tags)
    assert publish(found, settings, tmp_path).unchanged == (example.LAYER,)
    assert len(runs(without_turns)) == RUNS[example.LAYER]


def test_where_both_of_two_were_deleted_one_is_written_again(
    without_turns: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = example.settings()
    found = declared(settings, tmp_path)
    delete, done = keeping._delete, []

    def meanwhile(client: MlflowClient, there: families.There) -> None:
        """Somebody who saw ours unfinished deletes it, when we have just deleted theirs."""
        delete(client, there)
        if not done:
            done.append(there)
            assert there.kept is not None
            client.delete_run(there.kept.head.info.run_id)

    publish(found, settings, tmp_path)
    head = families.grouped(runs(without_turns)).families[0].head
    MlflowClient(without_turns).create_run(head.info.experiment_id, tags={"row": example.LAYER})
    monkeypatch.setattr(keeping, "_delete", meanwhile)
    assert publish(found, settings, tmp_path).written == (example.LAYER,)
    left = families.grouped(runs(without_turns))
    assert (len(left.families), left.strays) == (1, ())
