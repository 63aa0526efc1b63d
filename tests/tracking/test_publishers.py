"""Several processes that publish to one store at once leave one of each run, and none of them fails."""

import os
import shutil
import subprocess
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import postgres
import pytest
from mlflow import MlflowClient

from pipeline.tracking import upserting
from pipeline.tracking.drawing import Drawn
from pipeline.tracking.upserting import DIGEST, Upsert, publications
from tests.tracking.conftest import answers
from tests.tracking.publishers import RUNS, at_once


def one_of_each(address: str) -> Callable[[int], None]:
    """Fails unless the store holds every run of the newest records, once; and wrote it in this round."""
    before: set[str] = set()

    def check(_: int) -> None:
        client = MlflowClient(address)
        experiment = client.get_experiment_by_name("davody2020").experiment_id
        rows = publications(client, experiment)
        runs = [run for there in rows.values() for one in there.values() for run in one]
        assert {row: len(there) for row, there in rows.items()} == dict.fromkeys(RUNS, 1)
        assert Counter(run.data.tags["row"] for run in runs) == RUNS
        assert len({run.info.run_name for run in runs}) == sum(RUNS.values())
        heads = [run.data.tags["row"] for run in runs if DIGEST in run.data.tags]
        assert sorted(heads) == sorted(RUNS)
        now = {run.info.run_id for run in runs}
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


def test_two_on_postgresql_several_times_in_a_row(database: str, tmp_path: Path) -> None:
    # the first time round the database is empty, and the two make its tables
    at_once(database, 2, 2, tmp_path, one_of_each(database))


def test_twenty_who_know_of_no_lock(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upserting, "PAUSE", 0.1)
    client = MlflowClient(database)
    experiment = client.create_experiment("twenty")
    begin = Barrier(20)

    def publish(_: int) -> None:
        for version in ("old", "new"):
            wanted = {}
            for row in "abc":
                tags = {"row": row}
                drawn = Drawn(row, {**tags, "version": version}, below=(Drawn("below", tags),))
                wanted[row] = (experiment, drawn)
            begin.wait(120)
            Upsert(client, alone=False).bring(wanted)

    with ThreadPoolExecutor(20) as pool:
        list(pool.map(publish, range(20)))
    rows = publications(client, experiment)
    assert {row: len(there) for row, there in rows.items()} == {"a": 1, "b": 1, "c": 1}
    runs = [run for there in rows.values() for one in there.values() for run in one]
    assert len(runs) == 6
    assert {run.data.tags.get("version") for run in runs if DIGEST in run.data.tags} == {"new"}


@pytest.fixture
def server(tmp_path: Path, port: int, empty_store: Path) -> Iterator[str]:
    """An MLflow server of the test's own."""
    store = tmp_path / "server"
    store.mkdir()
    shutil.copy(empty_store, store)
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
        answers(address, process)
        yield address
    finally:
        os.killpg(process.pid, 15)
        process.wait(30)


def test_three_on_a_server_that_has_no_lock(server: str, tmp_path: Path) -> None:
    at_once(server, 3, 2, tmp_path, one_of_each(server))
