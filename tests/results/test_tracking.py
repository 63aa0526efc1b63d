import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
from keeping import keep
from mlflow import MlflowClient
from mlflow.entities import Run, ViewType
from reporting.made_up import clipping
from reporting.made_up import dpsgd as example

from pipeline.errors import UserError
from pipeline.params import Settings
from pipeline.results import records, tracking
from pipeline.results.records import Record

STORE_ENV = "MLFLOW_TRACKING_URI"


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database as MLflow makes it, once for all tests: the migration takes seconds."""
    path = tmp_path_factory.mktemp("store") / "mlflow.db"
    MlflowClient(f"sqlite:///{path}").search_experiments()
    return path


@pytest.fixture
def root(tmp_path: Path, empty_store: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv(STORE_ENV, raising=False)
    shutil.copy(empty_store, tmp_path / tracking.STORE)
    return tmp_path


@pytest.fixture
def declared() -> Settings:
    return example.settings()


def small(key: str, declared: Settings, shift: float = 0.0) -> Record:
    """A row's record with two levels and two seeds."""
    found = example.record(key, declared, shift=shift)
    kept = [one for one in found.replicas if one.level in ("epsilon=inf", "epsilon=3") and one.seed < 2]
    return found.model_copy(update={"replicas": kept})


def runs(root: Path, view: int = ViewType.ACTIVE_ONLY, paper: str = "davody2020") -> list[Run]:
    client = MlflowClient(tracking.address(root))
    experiment = client.get_experiment_by_name(paper)
    return list(client.search_runs([experiment.experiment_id], run_view_type=view)) if experiment else []


def parent(found: list[Run], row: str) -> Run:
    return next(run for run in found if run.data.tags.get("row") == row and run.data.tags["kind"] == "row")


def children(found: list[Run], of: Run) -> list[Run]:
    return [run for run in found if run.data.tags.get("mlflow.parentRunId") == of.info.run_id]


def test_a_row_is_a_parent_run_and_its_replicas_are_nested(root: Path, declared: Settings) -> None:
    record = example.put(small(example.LAYER, declared), root)
    done = tracking.publish([record], root)
    assert (done.written, done.unchanged) == ((example.LAYER,), ())
    found = runs(root)
    row = parent(found, example.LAYER)
    assert len(found) == 5
    assert {(run.data.tags["level"], run.data.tags["seed"]) for run in children(found, row)} == {
        ("epsilon=inf", "0"),
        ("epsilon=inf", "1"),
        ("epsilon=3", "0"),
        ("epsilon=3", "1"),
    }
    assert all(run.info.status == "FINISHED" for run in found)


def test_runs_carry_tags_settings_metrics_and_curves(root: Path, declared: Settings) -> None:
    record = example.put(small(example.LAYER, declared), root)
    tracking.publish([record], root)
    found = runs(root)
    row = parent(found, example.LAYER)
    one = next(
        run for run in children(found, row) if run.data.tags["replica"] == f"{example.LAYER}/epsilon=3/0"
    )
    for run in (row, one):
        tags = run.data.tags
        assert (tags["paper"], tags["table"], tags["budget"]) == ("davody2020", "t5", "full")
        assert tags["edition"] == "kmnist official, mnist official"
        # what an epsilon is worth stands beside it
        assert tags["privacy"] == "holds"
        assert tags["record"] == record.digest()
        assert tags["revision"] == tags["mlflow.source.git.commit"] == record.provenance.revision
        assert tags["data.train.inputs"] == record.provenance.data["train.inputs"]
        assert run.data.params["model.normalization"] == "layer"
    assert [one.data.params[name] for name in ("batch", "epsilon", "seed")] == ["1024", "3.0", "0"]
    metrics = next(r for r in record.replicas if (r.level, r.seed) == ("epsilon=3", 0)).metrics
    assert one.data.metrics["test_accuracy"] == metrics["test_accuracy"]
    # the final value, not the curve's last
    assert one.data.metrics["validation_accuracy"] == metrics["validation_accuracy"]
    assert one.data.metrics["epsilon_claimed"] == 3.0
    assert one.data.metrics["epsilon_accounted"] == pytest.approx(2.76)
    assert row.data.metrics["test_accuracy/epsilon 3"] == pytest.approx(0.974, abs=0.002)
    curve = MlflowClient(tracking.address(root)).get_metric_history(one.info.run_id, "epsilon_spent")
    assert [point.step for point in curve] == [54, 108, 162, 216]
    assert [point.value for point in curve] == sorted(point.value for point in curve)


def test_runs_keep_the_times_of_the_training(root: Path, declared: Settings) -> None:
    record = example.put(small(example.LAYER, declared), root)
    tracking.publish([record], root)
    found = runs(root)
    row = parent(found, example.LAYER)
    first = 1000 * example.STARTED
    assert (row.info.start_time, row.info.end_time) == (
        first,
        first + 102_000,
    )  # the second level began 2 s later
    one = next(run for run in children(found, row) if run.data.tags["level"] == "epsilon=3")
    assert (one.info.start_time, one.info.end_time) == (first + 2_000, first + 102_000)


def test_what_is_kept_of_a_row_are_artifacts_beside_the_database(root: Path, declared: Settings) -> None:
    record = example.put(small(example.LAYER, declared), root)
    tracking.publish([record], root)
    kept = [
        path(example.LAYER, root) for path in (records.evaluation_path, records.ledger_path, records.run_path)
    ]
    artifacts = sorted((root / tracking.ARTIFACTS).rglob("*"))
    assert [path.read_bytes() for path in artifacts if path.is_file()] == [path.read_bytes() for path in kept]


def test_a_bound_that_does_not_hold_is_no_metric(root: Path, declared: Settings) -> None:
    tracking.publish([example.put(small(example.LITERAL, declared), root)], root)
    found = runs(root)
    for run in children(found, parent(found, example.LITERAL)):
        assert "epsilon_accounted" not in run.data.metrics


def test_an_account_is_published_without_a_history(root: Path) -> None:
    declared = clipping.settings()
    keep(clipping.account(clipping.GDP, declared), root)
    (found,) = tracking.declared(declared, root)
    assert tracking.publish([found], root).written == (clipping.GDP,)
    published = runs(root, paper="nguyen2023")
    one = next(run for run in published if run.data.tags.get("level") == "noise_multiplier=2.5")
    assert (one.data.metrics["mu"], one.data.metrics["epsilon_accounted"]) == (0.5199, 2.0)
    assert (one.data.params["method"], one.data.params["parts"]) == ("accounting", "8")
    assert tracking.publish([found], root).unchanged == (clipping.GDP,)


def test_an_approximate_mu_is_a_metric_of_a_row_too(root: Path) -> None:
    declared = clipping.settings()
    keep(clipping.record(clipping.SIGMAS, declared), root)
    tracking.publish(tracking.declared(declared, root), root)
    published = runs(root, paper="nguyen2023")
    one = next(run for run in published if run.data.tags.get("level") == "sigma=1.5")
    assert one.data.metrics["mu"] == 1.0


def test_publishing_twice_changes_nothing(root: Path, declared: Settings) -> None:
    record = example.put(small(example.LAYER, declared), root)
    tracking.publish([record], root)
    before, marker = runs(root, ViewType.ALL), (root / tracking.MARKER).read_text()
    done = tracking.publish([record], root)
    assert (done.written, done.unchanged) == ((), (example.LAYER,))
    assert [run.to_dictionary() for run in runs(root, ViewType.ALL)] == [
        run.to_dictionary() for run in before
    ]
    assert (root / tracking.MARKER).read_text() == marker


def test_a_changed_record_replaces_its_row_and_no_other(root: Path, declared: Settings) -> None:
    other = example.put(small(example.PLAIN, declared), root)
    old = example.put(small(example.LAYER, declared), root)
    tracking.publish([other, old], root)
    kept, marker = parent(runs(root), example.PLAIN), (root / tracking.MARKER).read_text()
    new = example.put(small(example.LAYER, declared, shift=0.5), root)
    done = tracking.publish([other, new], root)
    assert (done.written, done.unchanged) == ((example.LAYER,), (example.PLAIN,))
    found = runs(root)
    assert len(found) == 10
    assert parent(found, example.PLAIN).info.run_id == kept.info.run_id
    assert {run.data.tags["record"] for run in found} == {other.digest(), new.digest()}
    assert len(runs(root, ViewType.DELETED_ONLY)) == 5
    assert (root / tracking.MARKER).read_text() != marker


@pytest.mark.parametrize("stop_at", ["create_run", "log_batch", "log_artifact", "set_tag"])
def test_a_row_cut_short_is_made_anew(
    root: Path, declared: Settings, monkeypatch: pytest.MonkeyPatch, stop_at: str
) -> None:
    record = example.put(small(example.LAYER, declared), root)
    original, calls = getattr(MlflowClient, stop_at), []

    def stops(*arguments: object, **named: object) -> object:
        calls.append(arguments)
        if len(calls) == (1 if stop_at in ("log_artifact", "set_tag") else 3):
            raise KeyboardInterrupt
        return original(*arguments, **named)

    with monkeypatch.context() as patch:
        patch.setattr(MlflowClient, stop_at, stops)
        with pytest.raises(KeyboardInterrupt):
            tracking.publish([record], root)
    assert not (root / tracking.MARKER).exists()
    assert tracking.publish([record], root).written == (example.LAYER,)
    found = runs(root)
    assert len(found) == 5
    assert len(children(found, parent(found, example.LAYER))) == 4
    assert tracking.publish([record], root).written == ()


def test_a_deletion_cut_short_is_finished(
    root: Path, declared: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    tracking.publish([example.put(small(example.LAYER, declared), root)], root)
    original = example.put(small(example.LAYER, declared), root)
    changed = example.put(small(example.LAYER, declared, shift=-1), root)
    delete, calls = MlflowClient.delete_run, []

    def stops(self: MlflowClient, run: str) -> None:
        calls.append(run)
        if len(calls) == 2:
            raise KeyboardInterrupt
        delete(self, run)

    with monkeypatch.context() as patch:
        patch.setattr(MlflowClient, "delete_run", stops)
        with pytest.raises(KeyboardInterrupt):
            tracking.publish([changed], root)
    # back to the old record: the runs left of it must not pass for the whole row
    example.put(small(example.LAYER, declared), root)
    assert tracking.publish([original], root).written == (example.LAYER,)
    assert len(runs(root)) == 5


def test_more_points_than_mlflow_takes_at_once(root: Path, declared: Settings) -> None:
    record = small(example.LAYER, declared)
    record = record.model_copy(update={"replicas": record.replicas[2:3]})
    path = records.history_path(record.row, root)
    path.parent.mkdir(parents=True)
    lines = [
        f"epsilon=3,0,{step},{step / 10},train_loss,{'nan' if step == 7 else 1 / (step + 1)}"
        for step in range(2500)
    ]
    path.write_text("\n".join([",".join(records.HISTORY_COLUMNS), *lines]) + "\n")
    record = record.model_copy(update={"history": tracking.digest_file(path)})
    keep(record, root)
    tracking.publish([record], root)
    found = runs(root)
    (one,) = children(found, parent(found, example.LAYER))
    curve = MlflowClient(tracking.address(root)).get_metric_history(one.info.run_id, "train_loss")
    assert len(curve) == 2499  # the one that is no number is left out


def test_a_history_may_be_missing_but_not_another_records(root: Path, declared: Settings) -> None:
    record = example.put(small(example.LAYER, declared), root, history=False)
    tracking.publish([record], root)
    assert len(runs(root)) == 5
    with_history = example.put(small(example.LAYER, declared), root)
    assert tracking.publish([with_history], root).written == (example.LAYER,)
    records.history_path(example.LAYER, root).write_text("other\n")
    with pytest.raises(UserError, match="does not belong to"):
        tracking.publish([with_history], root)


def test_tables_are_logged_once_and_again_when_they_change(root: Path) -> None:
    file = root / "t5.md"
    file.write_text("| a |\n")
    tables = {"t5": pd.DataFrame({"a": ["1"]})}
    assert tracking.publish_tables("davody2020", [file], tables, root)
    assert not tracking.publish_tables("davody2020", [file], tables, root)
    (run,) = runs(root)
    client = MlflowClient(tracking.address(root))
    assert {found.path for found in client.list_artifacts(run.info.run_id)} == {"t5.json", "t5.md"}
    file.write_text("| b |\n")
    assert tracking.publish_tables("davody2020", [file], tables, root)
    assert len(runs(root)) == 1


def test_another_store_is_honoured(
    root: Path, declared: Settings, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "other.db"
    shutil.move(root / tracking.STORE, elsewhere)
    monkeypatch.setenv(STORE_ENV, f"sqlite:///{elsewhere}")
    tracking.publish([example.put(small(example.LAYER, declared), root)], root)
    assert not (root / tracking.STORE).exists()
    assert len(runs(root)) == 5


def test_stores_that_fail_are_one_clear_line(
    root: Path, declared: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = example.put(small(example.LAYER, declared), root)
    with monkeypatch.context() as patch:
        patch.setenv(STORE_ENV, f"http://127.0.0.1:{free_port()}")
        patch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
        with pytest.raises(UserError, match=r"MLflow at http://127\.0\.0\.1") as problem:
            tracking.publish([record], root)
        assert len(str(problem.value).splitlines()) == 1
    other = root / "moved"
    other.mkdir()
    tracking.publish([record], root)
    shutil.copy(root / tracking.STORE, other)
    with pytest.raises(UserError, match=r"delete mlflow\.db and run `dprepro publish`"):
        tracking.publish([example.put(small(example.LAYER, declared), other)], other)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


@pytest.fixture
def served(root: Path, declared: Settings) -> Iterator[tuple[int, subprocess.Popen[str]]]:
    """`dprepro ui` in a folder with one row, and its port."""
    example.put(small(example.LAYER, declared), root)
    # JSON is YAML
    (root / "params.yaml").write_text(declared.model_dump_json(exclude_none=True))
    port = free_port()
    code = f"from stages.ui import ui; ui(port={port}, host='127.0.0.1')"
    process = subprocess.Popen([sys.executable, "-c", code], cwd=root, stdout=subprocess.PIPE, text=True)
    yield port, process
    process.send_signal(signal.SIGTERM)
    process.wait(20)


def test_ui_publishes_serves_and_says_where(root: Path, served: tuple[int, subprocess.Popen[str]]) -> None:
    port, process = served
    assert process.stdout is not None
    assert "1 rows published" in process.stdout.readline()
    assert f"http://127.0.0.1:{port}/#/compare-experiments/s?experiments=" in process.stdout.readline()
    until = time.monotonic() + 60
    while True:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as answer:
                assert answer.status == 200
            break
        except OSError:
            assert process.poll() is None, "the server ended"
            assert time.monotonic() < until
            time.sleep(0.2)
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/api/2.0/mlflow/runs/search",
        json.dumps({"experiment_ids": ["1"]}).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=20) as answer:
        assert len(json.load(answer)["runs"]) == 5
    code = f"from stages.ui import ui; ui(port={port}, host='127.0.0.1')"
    again = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, env=dict(os.environ)
    )
    assert again.returncode == 1
    assert f"127.0.0.1:{port}: can't serve there: Address already in use" in again.stderr
