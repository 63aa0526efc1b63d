"""Bringing a store up to date, and stores that can't be."""

import shutil
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest
from mlflow import MlflowClient
from mlflow.entities import Run, ViewType

from dprepro.errors import UserError
from dprepro.pipeline.params import Settings
from dprepro.pipeline.results import records
from dprepro.pipeline.tracking import store
from dprepro.pipeline.tracking.publishing import MARKER, declared, publish, publish_report, unpublished
from tests.keeping import keep
from tests.reporting.made_up import dpsgd as example
from tests.tracking.conftest import RUNS, small

LAYER, PLAIN = example.LAYER, example.PLAIN


@pytest.fixture
def settings() -> Settings:
    return example.settings()


def runs(view: int = ViewType.ACTIVE_ONLY) -> list[Run]:
    client = MlflowClient(store.address())
    experiment = client.get_experiment_by_name("davody2020")
    return list(client.search_runs([experiment.experiment_id], run_view_type=view))


def test_a_changed_record_replaces_its_row_and_no_other(root: Path, settings: Settings) -> None:
    other = example.put(small(PLAIN, settings), root)
    old = small(LAYER, settings)
    keep(old, root)
    assert unpublished([other, old], settings) == [other.row, LAYER]
    publish([other, old], settings)
    assert unpublished([other, old], settings) == []
    before, marker = {run.info.run_id for run in runs()}, (root / MARKER).read_text()
    done = publish([other, old], settings)
    assert (done.written, done.unchanged) == ((), (PLAIN, LAYER))
    assert ({run.info.run_id for run in runs(ViewType.ALL)}, (root / MARKER).read_text()) == (
        before,
        marker,
    )

    new = example.put(small(LAYER, settings, shift=0.5), root)
    assert unpublished([other, new], settings) == [LAYER]
    done = publish([other, new], settings)
    assert (done.written, done.unchanged) == ((LAYER,), (PLAIN,))
    now = runs()
    assert len(now) == 2 * RUNS
    assert {run.info.run_id for run in now if run.data.tags["row"] == PLAIN} < before
    assert len(runs(ViewType.DELETED_ONLY)) == RUNS
    assert (root / MARKER).read_text() != marker

    records.history_path(LAYER, root).write_text("other\n")
    with pytest.raises(UserError, match="does not belong to"):
        declared(settings)


def test_a_number_or_a_setting_that_somebody_changed_in_the_store_is_told_and_mended(
    root: Path, settings: Settings
) -> None:
    record = example.put(small(LAYER, settings), root)
    publish([record], settings)
    for table, value in (("latest_metrics", "0.999"), ("params", "'0.999'")):
        with closing(sqlite3.connect(root / store.STORE)) as database, database:
            key = database.execute(f"SELECT key FROM {table} WHERE key LIKE '%a%'").fetchone()
            changed = database.execute(f"UPDATE {table} SET value = {value} WHERE key = ?", key)
            assert changed.rowcount > 0
        assert unpublished([record], settings) == [LAYER]
        assert publish([record], settings).written == (LAYER,)
        assert unpublished([record], settings) == []


def test_an_experiment_that_somebody_deleted_comes_back(root: Path, settings: Settings) -> None:
    record = example.put(small(LAYER, settings), root)
    publish([record], settings)
    client = MlflowClient(store.address())
    client.delete_experiment(client.get_experiment_by_name("davody2020").experiment_id)
    publish([record], settings)
    assert len(runs()) == RUNS


def test_a_report_is_logged_once_and_again_when_it_changes(root: Path, settings: Settings) -> None:
    page = root / "papers" / "davody2020.html"
    page.parent.mkdir(exist_ok=True)
    page.write_text("<p>one")
    assert publish_report("davody2020", [page], settings)
    assert not publish_report("davody2020", [page], settings)
    page.write_text("<p>two")
    assert publish_report("davody2020", [page], settings)
    (run,) = runs()
    client = MlflowClient(store.address())
    (file,) = {each.path for each in client.list_artifacts(run.info.run_id)} - {"digests.json"}
    files = Path(client.download_artifacts(run.info.run_id, file))
    assert [each.read_text() for each in (files.rglob("*.html") if files.is_dir() else [files])] == ["<p>two"]


def test_a_folder_may_be_called_what_a_url_takes_for_something_else(
    root: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = root / "what? 5%41 #1/laboratory"
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    record = example.put(small(LAYER, settings), folder)
    assert publish([record], settings).written == (LAYER,)
    assert publish([record], settings).unchanged == (LAYER,)
    there = {path.name for path in (*root.iterdir(), *folder.parent.iterdir())}
    assert there - {"papers"} == {store.STORE.name, folder.parent.name, folder.name}
    assert (folder / store.STORE).exists()


def test_stores_that_fail_are_one_clear_line(
    root: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch, port: int
) -> None:
    record = example.put(small(LAYER, settings), root)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    (root / "text.db").write_text("no database, but several lines of text\n" * 100)
    with sqlite3.connect(root / "other.db") as database:
        database.execute("CREATE TABLE spans (x)")
    for address, said in (
        (f"http://me:secret@127.0.0.1:{port}", rf"MLflow at http://127\.0\.0\.1:{port}: "),
        (f"http://me:%73ecret@127.0.0.1:{port}", rf"MLflow at http://127\.0\.0\.1:{port}: "),
        ("nonsense", "MLFLOW_TRACKING_URI: nonsense: "),
        (
            f"sqlite:///{root}/text.db",
            r"text\.db: is no MLflow store \(file is not a database\); move it away",
        ),
        (f"sqlite:///{root}/other.db", r"other\.db: is no MLflow store \(no such table: experiments\); "),
    ):
        began = time.monotonic()
        monkeypatch.setenv(store.STORE_ENV, address)
        with pytest.raises(UserError, match=said) as problem:
            publish([record], settings)
        assert len(str(problem.value).splitlines()) == 1
        assert "ecret" not in str(problem.value)
        assert time.monotonic() - began < 100  # tried again and again, it would be an hour
    monkeypatch.delenv(store.STORE_ENV)
    other = root / "moved"
    other.mkdir()
    publish([record], settings)
    shutil.copy(root / store.STORE, other)
    monkeypatch.chdir(other)
    with pytest.raises(UserError, match=r"delete mlflow\.db and run `dprepro publish`"):
        publish([example.put(small(LAYER, settings), other)], settings)


def test_an_address_is_told_without_who_logs_in_there(monkeypatch: pytest.MonkeyPatch) -> None:
    for address, told in (
        ("postgresql://me:p@ss@host:1/runs", "postgresql://host:1/runs"),
        ("http://me:secret@host:5000/", "http://host:5000/"),
        ("http://host:5000/a@b", "http://host:5000/a@b"),
        ("sqlite:////home/a@b/mlflow.db", "sqlite:////home/a@b/mlflow.db"),
    ):
        monkeypatch.setenv(store.STORE_ENV, address)
        assert store.address_without_password() == told
