"""Several processes that publish to one database at once leave one of each run, and none of them fails."""

import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import postgres
import pytest
from mlflow import MlflowClient

from pipeline.tracking import upserting
from pipeline.tracking.drawing import Drawn
from pipeline.tracking.upserting import DIGEST, Upsert, publications
from tests.tracking.publishers import at_once, one_of_each


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
    runs = [run for there in rows.values() for publication in there.values() for run in publication]
    assert len(runs) == 6
    assert {run.data.tags.get("version") for run in runs if DIGEST in run.data.tags} == {"new"}
