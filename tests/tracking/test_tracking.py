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
from publishers import small
from reporting.made_up import clipping
from reporting.made_up import dpsgd as example

from pipeline.errors import UserError
from pipeline.files import digest_file
from pipeline.params import Settings
from pipeline.reporting.judging.intervals import mean
from pipeline.results import records
from pipeline.tracking import store
from pipeline.tracking.publishing import MARKER, publish
from pipeline.tracking.publishing import declared as recorded
from pipeline.tracking.tables import publish_tables


@pytest.fixture
def root(tmp_path: Path, empty_store: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv(store.STORE_ENV, raising=False)
    shutil.copy(empty_store, tmp_path / store.STORE)
    return tmp_path


@pytest.fixture
def declared() -> Settings:
    return example.settings()


def runs(root: Path, view: int = ViewType.ACTIVE_ONLY, paper: str = "davody2020") -> list[Run]:
    client = MlflowClient(store.address(root))
    experiment = client.get_experiment_by_name(paper)
    return list(client.search_runs([experiment.experiment_id], run_view_type=view)) if experiment else []


def head(found: list[Run], row: str) -> Run:
    return next(run for run in found if run.data.tags.get("row") == row and run.data.tags["kind"] == "row")


def children(found: list[Run], of: Run) -> list[Run]:
    return [run for run in found if run.data.tags.get("mlflow.parentRunId") == of.info.run_id]


def named(found: list[Run], name: str) -> Run:
    (run,) = (run for run in found if run.info.run_name == name)
    return run


NAME = "DPSGD (LN-LeNet-5)"
RUNS = 7  # of a row of two levels and two seeds: itself, the levels, and their seeds


def test_a_row_is_a_run_with_its_levels_below_and_their_seeds_below_these(
    root: Path, declared: Settings
) -> None:
    record = example.put(small(example.LAYER, declared), root)
    done = publish([record], declared, root)
    assert (done.written, done.unchanged, done.runs) == ((example.LAYER,), (), RUNS)
    found = runs(root)
    assert len(found) == RUNS
    row = named(found, f"{NAME} (Table 5)")
    levels = children(found, row)
    assert {one.info.run_name for one in levels} == {
        f"{NAME}, epsilon 3 (Table 5)",
        f"{NAME}, epsilon inf (Table 5)",
    }
    seeds = children(found, named(found, f"{NAME}, epsilon 3 (Table 5)"))
    assert {one.info.run_name for one in seeds} == {
        f"{NAME}, epsilon 3, seed 0 (Table 5)",
        f"{NAME}, epsilon 3, seed 1 (Table 5)",
    }
    assert [one.data.tags["kind"] for one in (row, levels[0], seeds[0])] == ["row", "level", "seed"]
    assert all(run.info.status == "FINISHED" for run in found)


def test_a_level_with_one_seed_is_that_seeds_run(root: Path, declared: Settings) -> None:
    record = small(example.LAYER, declared)
    record = record.model_copy(update={"replicas": record.replicas[:1]})
    publish([example.put(record, root)], declared, root)
    found = runs(root)
    assert len(found) == 2
    (one,) = children(found, head(found, example.LAYER))
    assert one.info.run_name == f"{NAME}, epsilon inf, seed 0 (Table 5)"
    assert (one.data.tags["kind"], one.data.tags["seeds"]) == ("level", "1")
    assert "seconds" in one.data.metrics  # what a seed has and a mean has not


def test_runs_of_an_experiment_have_names_of_their_own(root: Path) -> None:
    # the same label, table and levels; the one on a reduced budget, the other under another key
    label = {"label": NAME}
    declared = example.settings(**{example.PLAIN: label, example.PUBLIC: {**label, "budget": "reduced"}})
    for key in (example.PLAIN, example.LAYER, example.PUBLIC):
        example.put(small(key, declared), root)
    publish(recorded(declared, root), declared, root)
    names = [run.info.run_name for run in runs(root)]
    assert len(names) == len(set(names)) == 3 * RUNS
    assert f"{NAME}, epsilon 3, seed 0 (Table 5, {example.PLAIN})" in names
    assert f"{NAME}, epsilon 3, seed 0 (Table 5, reduced)" in names


def test_a_run_says_what_it_is(root: Path, declared: Settings) -> None:
    record = example.put(small(example.LAYER, declared), root)
    publish([record], declared, root)
    found = runs(root)
    one = named(found, f"{NAME}, epsilon 3, seed 0 (Table 5)")
    tags = one.data.tags
    assert (tags["paper"], tags["table"], tags["budget"], tags["row"]) == (
        "davody2020", "t5", "full", example.LAYER,
    )  # fmt: skip
    # what an epsilon is worth stands beside it
    assert tags["privacy"] == "holds"
    assert tags["mlflow.source.git.commit"] == record.provenance.revision
    note = tags["mlflow.note.content"]
    assert "Table 5 of Davody et al. 2020" in note
    assert "Test accuracy on MNIST: 97." in note
    assert "Privacy holds: proven is ε ≤ 2.76 at δ 1e-5. Claimed is 3." in note
    assert not any(value.startswith("sha256:") for value in tags.values())  # they are in digests.json
    row = head(found, example.LAYER).data.tags["mlflow.note.content"]
    assert "| epsilon 3 | 97." in row
    assert "| ≤ 2.76 | holds |" in row


def test_settings_are_found_as_one_types_them(root: Path, declared: Settings) -> None:
    record = example.put(small(example.LAYER, declared), root)
    publish([record], declared, root)
    client = MlflowClient(store.address(root))
    experiment = client.get_experiment_by_name("davody2020").experiment_id
    for wanted in (
        'params.epsilon = "3"',
        "metrics.epsilon_proven <= 3",
        'params.delta = "1e-5" and params.data_set = "mnist" and tags.level = "epsilon=3"',
    ):
        found = client.search_runs([experiment], wanted)
        assert {run.data.tags["level"] for run in found} == {"epsilon=3"}, wanted
        assert len(found) == 3, wanted


def test_runs_hold_a_handful_of_metrics(root: Path, declared: Settings) -> None:
    record = example.put(small(example.LAYER, declared), root)
    publish([record], declared, root)
    found = runs(root)
    one = named(found, f"{NAME}, epsilon 3, seed 0 (Table 5)").data.metrics
    assert one.keys() == {
        "test_accuracy", "validation_accuracy", "seconds",
        "epsilon_claimed", "epsilon_proven", "epsilon_spent",
    }  # fmt: skip
    metrics = next(r for r in record.replicas if (r.level, r.seed) == ("epsilon=3", 0)).metrics
    assert one["test_accuracy"] == metrics["test_accuracy"]
    # the final value, not the curve's last
    assert one["validation_accuracy"] == metrics["validation_accuracy"]
    assert one["epsilon_claimed"] == 3.0
    assert one["epsilon_proven"] == pytest.approx(2.76)
    run = named(found, f"{NAME}, epsilon 3, seed 0 (Table 5)").info.run_id
    curve = MlflowClient(store.address(root)).get_metric_history(run, "epsilon_spent")
    assert [point.step for point in curve] == [54, 108, 162, 216]
    assert [point.value for point in curve] == sorted(point.value for point in curve)


def test_levels_and_rows_have_the_mean_and_its_interval(root: Path, declared: Settings) -> None:
    record = example.put(small(example.LAYER, declared), root)
    publish([record], declared, root)
    found = runs(root)
    expected = mean([one.metrics["test_accuracy"] for one in record.replicas if one.level == "epsilon=3"])
    level = named(found, f"{NAME}, epsilon 3 (Table 5)").data
    assert level.metrics["test_accuracy"] == pytest.approx(expected.value)
    assert level.metrics["test_accuracy_half_width"] == pytest.approx(expected.half, rel=1e-3)
    assert level.metrics["epsilon_proven"] == pytest.approx(2.76)
    assert (level.params["epsilon"], level.tags["seeds"]) == ("3", "2")
    row = head(found, example.LAYER).data.metrics
    assert row["test_accuracy/epsilon 3"] == pytest.approx(expected.value)
    assert row["test_accuracy_half_width/epsilon 3"] == pytest.approx(expected.half, rel=1e-3)


def test_what_was_trained_on_is_an_input(root: Path, declared: Settings) -> None:
    publish([example.put(small(example.LAYER, declared), root)], declared, root)
    for run in runs(root):
        (found,) = run.inputs.dataset_inputs
        assert (found.dataset.name, found.dataset.source_type) == ("mnist", "http")
        assert json.loads(found.dataset.source) == {"url": "https://ossci-datasets.s3.amazonaws.com/mnist/"}
        assert len(found.dataset.digest) == 16
        assert [(tag.key, tag.value) for tag in found.tags] == [("mlflow.data.context", "training")]


@pytest.mark.parametrize(
    ("row", "said"),
    [(example.LAYER, "holds"), (example.LITERAL, "does not hold")],
)
def test_what_privacy_is_worth_is_a_tag(root: Path, declared: Settings, row: str, said: str) -> None:
    publish([example.put(small(row, declared), root)], declared, root)
    found = runs(root)
    assert head(found, row).data.tags["privacy"] == said
    for one in found:
        if one.data.tags.get("level") == "epsilon=inf":
            assert one.data.tags["privacy"] == "none"
        if one.data.tags.get("level") == "epsilon=3":
            assert one.data.tags["privacy"] == said


def test_runs_keep_the_times_of_the_training(root: Path, declared: Settings) -> None:
    record = example.put(small(example.LAYER, declared), root)
    publish([record], declared, root)
    found = runs(root)
    row = head(found, example.LAYER)
    first = 1000 * example.STARTED
    assert (row.info.start_time, row.info.end_time) == (
        first,
        first + 102_000,
    )  # the second level began 2 s later
    one = next(run for run in children(found, row) if run.data.tags["level"] == "epsilon=3")
    assert (one.info.start_time, one.info.end_time) == (first + 2_000, first + 102_000)


def test_what_is_kept_of_a_row_are_artifacts_beside_the_database(root: Path, declared: Settings) -> None:
    record = example.put(small(example.LAYER, declared), root)
    publish([record], declared, root)
    found = {path.name if path.parent.name == "artifacts" else path.parent.name: path
             for path in (root / store.ARTIFACTS).rglob("*") if path.is_file()}  # fmt: skip
    for path in (records.evaluation_path, records.ledger_path, records.run_path):
        kept = path(example.LAYER, root)
        assert found.pop(kept.parent.name).read_bytes() == kept.read_bytes()
    digests = json.loads(found.pop("digests.json").read_text())
    assert found == {}
    assert digests["record"] == record.digest()
    assert digests["origins"][0]["data"] == record.provenance.data


def test_a_bound_that_does_not_hold_is_no_metric(root: Path, declared: Settings) -> None:
    publish([example.put(small(example.LITERAL, declared), root)], declared, root)
    found = runs(root)
    for run in found:
        assert "epsilon_proven" not in run.data.metrics


def test_an_account_is_published_without_a_history(root: Path) -> None:
    declared = clipping.settings()
    keep(clipping.account(clipping.GDP, declared), root)
    (found,) = recorded(declared, root)
    assert publish([found], declared, root).written == (clipping.GDP,)
    published = runs(root, paper="nguyen2023")
    one = next(run for run in published if run.data.tags.get("level") == "noise_multiplier=2.5")
    assert (one.data.metrics["mu"], one.data.metrics["epsilon_proven"]) == (0.5199, 2.0)
    assert (one.data.params["method"], one.data.params["parts"]) == ("accounting", "8")
    assert publish([found], declared, root).unchanged == (clipping.GDP,)


def test_an_approximate_mu_is_a_metric_of_a_row_too(root: Path) -> None:
    declared = clipping.settings()
    keep(clipping.record(clipping.SIGMAS, declared), root)
    publish(recorded(declared, root), declared, root)
    published = runs(root, paper="nguyen2023")
    one = next(run for run in published if run.data.tags.get("level") == "sigma=1.5")
    assert one.data.metrics["mu"] == 1.0


def test_publishing_twice_changes_nothing(root: Path, declared: Settings) -> None:
    record = example.put(small(example.LAYER, declared), root)
    publish([record], declared, root)
    before, marker = runs(root, ViewType.ALL), (root / MARKER).read_text()
    done = publish([record], declared, root)
    assert (done.written, done.unchanged) == ((), (example.LAYER,))
    assert [run.to_dictionary() for run in runs(root, ViewType.ALL)] == [
        run.to_dictionary() for run in before
    ]
    assert (root / MARKER).read_text() == marker


def test_a_changed_record_replaces_its_row_and_no_other(root: Path, declared: Settings) -> None:
    other = example.put(small(example.PLAIN, declared), root)
    old = example.put(small(example.LAYER, declared), root)
    publish([other, old], declared, root)
    kept, marker = head(runs(root), example.PLAIN), (root / MARKER).read_text()
    new = example.put(small(example.LAYER, declared, shift=0.5), root)
    done = publish([other, new], declared, root)
    assert (done.written, done.unchanged) == ((example.LAYER,), (example.PLAIN,))
    found = runs(root)
    assert len(found) == 2 * RUNS
    assert head(found, example.PLAIN).info.run_id == kept.info.run_id
    assert len(runs(root, ViewType.DELETED_ONLY)) == RUNS
    assert (root / MARKER).read_text() != marker


@pytest.mark.parametrize("stop_at", ["create_run", "log_batch", "log_artifacts", "set_terminated"])
def test_a_row_cut_short_is_made_anew(
    root: Path, declared: Settings, monkeypatch: pytest.MonkeyPatch, stop_at: str
) -> None:
    record = example.put(small(example.LAYER, declared), root)
    original, calls = getattr(MlflowClient, stop_at), []

    def stops(*arguments: object, **named: object) -> object:
        calls.append(arguments)
        if len(calls) == (1 if stop_at == "log_artifacts" else 3):
            raise KeyboardInterrupt
        return original(*arguments, **named)

    with monkeypatch.context() as patch:
        patch.setattr(MlflowClient, stop_at, stops)
        with pytest.raises(KeyboardInterrupt):
            publish([record], declared, root)
    assert not (root / MARKER).exists()
    assert publish([record], declared, root).written == (example.LAYER,)
    found = runs(root)
    assert len(found) == RUNS
    assert len(children(found, head(found, example.LAYER))) == 2
    assert publish([record], declared, root).written == ()


def test_a_deletion_cut_short_is_finished(
    root: Path, declared: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish([example.put(small(example.LAYER, declared), root)], declared, root)
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
            publish([changed], declared, root)
    # back to the old record: the runs left of it must not pass for the whole row
    example.put(small(example.LAYER, declared), root)
    assert publish([original], declared, root).written == (example.LAYER,)
    assert len(runs(root)) == RUNS


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
    record = record.model_copy(update={"history": digest_file(path)})
    keep(record, root)
    publish([record], declared, root)
    found = runs(root)
    (one,) = children(found, head(found, example.LAYER))
    curve = MlflowClient(store.address(root)).get_metric_history(one.info.run_id, "train_loss")
    assert len(curve) == 2499  # the one that is no number is left out


def test_a_history_may_be_missing_but_not_another_records(root: Path, declared: Settings) -> None:
    record = example.put(small(example.LAYER, declared), root, history=False)
    publish([record], declared, root)
    assert len(runs(root)) == RUNS
    with_history = example.put(small(example.LAYER, declared), root)
    assert publish([with_history], declared, root).written == (example.LAYER,)
    records.history_path(example.LAYER, root).write_text("other\n")
    with pytest.raises(UserError, match="does not belong to"):
        publish([with_history], declared, root)


def test_tables_are_logged_once_and_again_when_they_change(root: Path) -> None:
    file = root / "t5.md"
    file.write_text("| a |\n")
    tables = {"t5": pd.DataFrame({"a": ["1"]})}
    assert publish_tables("davody2020", [file], tables, root)
    assert not publish_tables("davody2020", [file], tables, root)
    (run,) = runs(root)
    client = MlflowClient(store.address(root))
    assert {found.path for found in client.list_artifacts(run.info.run_id)} == {"t5.json", "t5.md"}
    file.write_text("| b |\n")
    assert publish_tables("davody2020", [file], tables, root)
    assert len(runs(root)) == 1


def test_another_store_is_honoured(
    root: Path, declared: Settings, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "other.db"
    shutil.move(root / store.STORE, elsewhere)
    monkeypatch.setenv(store.STORE_ENV, f"sqlite:///{elsewhere}")
    publish([example.put(small(example.LAYER, declared), root)], declared, root)
    assert not (root / store.STORE).exists()
    assert len(runs(root)) == RUNS


def test_stores_that_fail_are_one_clear_line(
    root: Path, declared: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = example.put(small(example.LAYER, declared), root)
    with monkeypatch.context() as patch:
        patch.setenv(store.STORE_ENV, f"http://127.0.0.1:{free_port()}")
        patch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
        with pytest.raises(UserError, match=r"MLflow at http://127\.0\.0\.1") as problem:
            publish([record], declared, root)
        assert len(str(problem.value).splitlines()) == 1
    other = root / "moved"
    other.mkdir()
    publish([record], declared, root)
    shutil.copy(root / store.STORE, other)
    with pytest.raises(UserError, match=r"delete mlflow\.db and run `dprepro publish`"):
        publish([example.put(small(example.LAYER, declared), other)], declared, other)


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
    said = ""
    while "1 rows published" not in said:
        said = process.stdout.readline()
        assert said.startswith("publish: ") or "1 rows published" in said
    assert "MLflow starts" in process.stdout.readline()
    shown = [process.stdout.readline() for _ in range(6)]
    assert "every result" in shown[0]
    assert f"http://127.0.0.1:{port}/#/experiments/1/runs?viewStateShareKey=results&" in shown[1]
    assert "best at a proven epsilon of at most 3 on MNIST" in shown[2]
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
        assert len(json.load(answer)["runs"]) == RUNS
    code = f"from stages.ui import ui; ui(port={port}, host='127.0.0.1')"
    again = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, env=dict(os.environ)
    )
    assert again.returncode == 1
    assert f"127.0.0.1:{port}: can't serve there: Address already in use" in again.stderr
