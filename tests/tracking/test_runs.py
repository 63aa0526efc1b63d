"""What the runs of a published row are called, say and hold."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest
from mlflow import MlflowClient
from mlflow.entities import Run

from dprepro.pipeline.files import digest_file
from dprepro.pipeline.params import Settings, parse
from dprepro.pipeline.reporting import papers, verdict
from dprepro.pipeline.reporting.intervals import mean
from dprepro.pipeline.results import records, schema
from dprepro.pipeline.results.schema import Record
from dprepro.pipeline.tracking import runs, store, views
from dprepro.pipeline.tracking.publishing import ARTIFACTS, declared, publish
from dprepro.pipeline.tracking.runs import build_run, canonical
from tests.keeping import keep
from tests.reporting.made_up import dpsgd as example
from tests.tracking.conftest import RUNS, small

NAME = "DPSGD (LN-LeNet-5)"


class Store:
    """A store with what was published into it."""

    def __init__(self, root: Path, settings: Settings, *written: Record) -> None:
        self.root, self.settings = root, settings
        for record in written:
            keep(record, root)
        self.done = publish(declared(settings), settings)
        self.client = MlflowClient(store.address())

    def runs(self, wanted: str = "", paper: str = "davody2020") -> list[Run]:
        experiment = self.client.get_experiment_by_name(paper)
        return list(self.client.search_runs([experiment.experiment_id], wanted))

    def named(self, name: str) -> Run:
        (run,) = (run for run in self.runs() if run.info.run_name == name)
        return run


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory, empty_store: Path) -> Iterator[Store]:
    """A row whose privacy holds, and one where it does not."""
    root = tmp_path_factory.mktemp("rows")
    shutil.copy(empty_store, root / store.STORE)
    settings = example.settings()
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(store.STORE_ENV, raising=False)
        patch.chdir(root)
        for key in (example.LAYER, example.LITERAL):
            example.put(small(key, settings), root)
        yield Store(root, settings)


def replicas(level: str) -> list[schema.Replica]:
    return [
        replica for replica in small(example.LAYER, example.settings()).replicas if replica.level == level
    ]


def test_scores_over_all_classes_are_means_over_seeds() -> None:
    """Recalls and confusion matrices are none of them."""
    first, second = (
        replica.model_copy(
            update={
                "scores": schema.Scores(
                    auc=auc, f1=0.5, log_loss=None, calibration_error=0.125, recall=(1.0, 0.0), confusion=None
                )
            }
        )
        for replica, auc in zip(replicas("epsilon=3"), (0.75, 0.5), strict=True)
    )
    assert runs._scores([first, second]) == {
        "test_auc": 0.625,
        "test_f1": 0.5,
        "test_calibration_error": 0.125,
    }
    assert runs._scores(replicas("epsilon=3")) == runs._scores([first, *replicas("epsilon=3")]) == {}


def test_a_row_is_a_run_with_its_levels_below_and_their_seeds_below_these(rows: Store) -> None:
    assert (set(rows.done.written), rows.done.runs) == ({example.LAYER, example.LITERAL}, 2 * RUNS)
    runs = rows.runs(f"tags.row = '{example.LAYER}'")
    by_id = {run.info.run_id: run for run in runs}
    above = {
        run.info.run_name: by_id[parent].info.run_name if parent in by_id else parent
        for run in runs
        for parent in [run.data.tags.get("mlflow.parentRunId")]
    }
    row, level = f"{NAME} (Table 5)", f"{NAME}, ε = {{}} (Table 5)"
    assert above == {
        row: None,
        level.format(3): row,
        level.format("∞"): row,
        **{
            f"{NAME}, ε = {value}, seed {seed} (Table 5)": level.format(value)
            for value in (3, "∞")
            for seed in (0, 1)
        },
    }
    kinds = [rows.named(name).data.tags["kind"] for name in (row, level.format(3))]
    assert [*kinds, rows.named(f"{NAME}, ε = 3, seed 0 (Table 5)").data.tags["kind"]] == [
        "row",
        "level",
        "seed",
    ]
    assert all(run.info.status == "FINISHED" for run in runs)


def test_a_run_says_what_it_is_and_what_its_privacy_is_worth(rows: Store) -> None:
    tags = rows.named(f"{NAME}, ε = 3, seed 0 (Table 5)").data.tags
    assert (tags["paper"], tags["table"], tags["budget"]) == ("davody2020", "t5", "full")
    made = small(example.LAYER, example.settings()).provenance
    assert tags["mlflow.source.name"] == made.command
    note = tags["mlflow.note.content"]
    assert "Test accuracy on MNIST in %: 97." in note
    assert "Privacy: proven. Proven is ε ≤ 2.76 at δ 1e-5 (one training example; add or remove one)." in note
    assert "Claimed is 3." in note
    row = rows.named(f"{NAME} (Table 5)").data.tags["mlflow.note.content"]
    assert "Table 5 of Davody et al. 2020" in row
    assert f"- {rows.named(f'{NAME}, ε = 3 (Table 5)').data.tags['mlflow.note.content']}" in row
    for run in rows.runs():
        holds, level = run.data.tags["row"] == example.LAYER, run.data.tags.get("level")
        words = "no claim" if level == "epsilon=inf" else "proven" if holds else "not proven"
        assert run.data.tags["privacy"] == words
        assert ("epsilon_proven" in run.data.metrics) == (holds and level == "epsilon=3")


def test_settings_and_what_an_epsilon_is_of_are_found_as_one_types_them(rows: Store) -> None:
    for wanted in (
        'params.epsilon = "3"',
        "metrics.epsilon_proven <= 3 and metrics.delta <= 0.00001",
        'params.delta = "1e-5" and params.data_set = "mnist" and tags.level = "epsilon=3"',
        "params.neighbouring = 'add or remove one' and tags.level = 'epsilon=3'",
    ):
        runs = rows.runs(f"{wanted} and tags.row = '{example.LAYER}'")
        assert [run.data.tags["level"] for run in runs] == ["epsilon=3"] * 3, wanted
    assert not rows.runs("params.neighbouring LIKE '%' and tags.level = 'epsilon=inf'")
    texts = [canonical(value) for value in (3.0, 1e-5, 1.5e20, "Infinity", float("-inf"), True, [1, 2])]
    assert texts == ["3", "1e-5", "1.5e20", "inf", "-inf", "true", "[1, 2]"]


def test_a_setting_that_does_not_apply_to_a_row_is_not_logged() -> None:
    settings = example.settings()
    record = small(example.LAYER, settings)
    changed = {**record.replicas[0].settings, "epochs": None}
    run = build_run(example.altered(record, settings=changed), papers.load("davody2020"), settings)
    assert all("epochs" not in each.params and "batch" in each.params for each in run.every())


def test_each_view_finds_its_runs_and_has_what_epsilons_compare_by(rows: Store) -> None:
    experiment = rows.client.get_experiment_by_name("davody2020")
    counts = {}
    for view in views.VIEWS:
        state = json.loads(experiment.tags[f"mlflow.sharedViewState.{view.key}"])
        assert {"params.`delta`", "params.`neighbouring`", "params.`data_set`"} < set(
            state["selectedColumns"]
        )
        runs = rows.runs(state["searchFilter"])
        assert all(run.data.tags["kind"] == "level" for run in runs)
        counts[view.key] = {run.data.tags["row"] for run in runs}
    both = {example.LAYER, example.LITERAL}
    assert counts == {
        "results": both, "best-at-3-on-mnist": {example.LAYER}, "no-proven-bound": {example.LITERAL},
        "spends-more": set(),
    }  # fmt: skip


def test_a_seed_has_its_curves_and_a_handful_of_metrics(rows: Store) -> None:
    run = rows.named(f"{NAME}, ε = 3, seed 0 (Table 5)")
    assert run.data.metrics.keys() == {
        "test_accuracy", "validation_accuracy", "seconds",
        "epsilon_claimed", "epsilon_proven", "epsilon_spent", "delta",
    }  # fmt: skip
    measured = replicas("epsilon=3")[0].metrics
    assert run.data.metrics["test_accuracy"] == round(measured["test_accuracy"], 4)
    # the final value, not the curve's last
    assert run.data.metrics["validation_accuracy"] == round(measured["validation_accuracy"], 4)
    assert (run.data.metrics["epsilon_claimed"], run.data.metrics["epsilon_proven"]) == (3.0, 2.76)
    curve = rows.client.get_metric_history(run.info.run_id, "epsilon_spent")
    assert [point.step for point in curve] == [54, 108, 162, 216]
    assert [point.value for point in curve] == sorted(point.value for point in curve)
    assert curve[-1].timestamp == run.info.end_time


def test_levels_and_rows_have_the_mean_and_its_interval(rows: Store) -> None:
    expected = mean([replica.metrics["test_accuracy"] for replica in replicas("epsilon=3")])
    level = rows.named(f"{NAME}, ε = 3 (Table 5)").data
    assert expected.half is not None
    # as many digits as mean something
    accuracy, half = round(expected.value, 4), float(f"{expected.half:.2g}")
    assert level.metrics["test_accuracy"] == accuracy != expected.value
    assert level.metrics["test_accuracy_half_width"] == half != expected.half
    assert level.metrics["epsilon_proven"] == 2.76
    assert (level.params["epsilon"], level.tags["seeds"]) == ("3", "2")
    row = rows.named(f"{NAME} (Table 5)").data.metrics
    assert row["test_accuracy/epsilon 3"] == accuracy
    assert row["test_accuracy_half_width/epsilon 3"] == half


def test_what_was_trained_on_is_an_input(rows: Store) -> None:
    for run in rows.runs():
        (trained_on,) = run.inputs.dataset_inputs
        assert (trained_on.dataset.name, trained_on.dataset.source_type) == ("mnist", "http")
        source = json.loads(trained_on.dataset.source)
        assert source == {"url": "https://ossci-datasets.s3.amazonaws.com/mnist/"}
        assert len(trained_on.dataset.digest) == 16
        assert [(tag.key, tag.value) for tag in trained_on.tags] == [("mlflow.data.context", "training")]


def test_what_is_kept_of_a_row_are_artifacts_beside_the_database(rows: Store) -> None:
    run = rows.named(f"{NAME} (Table 5)").info.run_id
    folder = rows.root / ARTIFACTS / "davody2020" / run / "artifacts"
    kept = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    digests = json.loads(kept.pop("digests.json").read_text())
    for path in (records.evaluation_path, records.ledger_path, records.run_path):
        original = path(example.LAYER, rows.root)
        assert kept.pop(f"{original.parent.name}/{original.name}").read_bytes() == original.read_bytes()
    assert kept == {}
    (record,) = (record for record in declared(rows.settings) if record.row == example.LAYER)
    assert digests["record"] == record.digest()
    assert digests["origins"][0]["data"] == record.provenance.data


def test_runs_of_an_experiment_have_names_of_their_own(root: Path) -> None:
    # the same label, table and levels; the one on a reduced budget, the other under another key
    label = {"label": NAME}
    settings = example.settings(**{example.PLAIN: label, example.PUBLIC: {**label, "budget": "reduced"}})
    for key in (example.PLAIN, example.LAYER, example.PUBLIC):
        example.put(small(key, settings), root)
    names = [run.info.run_name for run in Store(root, settings).runs()]
    assert len(names) == len(set(names)) == 3 * RUNS
    assert f"{NAME}, ε = 3, seed 0 (Table 5, {example.PLAIN})" in names
    assert f"{NAME}, ε = 3, seed 0 (Table 5, reduced)" in names


def test_every_verdict_on_privacy_has_a_rank() -> None:
    """A level's tag is the verdict on its worst seed."""
    assert sorted(runs.WORST_FIRST) == sorted(get_args(verdict.Privacy))


def test_a_level_with_one_seed_is_that_seeds_run_with_more_points_than_mlflow_takes_at_once(
    root: Path,
) -> None:
    settings = example.settings()
    record = small(example.LAYER, settings)
    path = records.history_path(record.row, root)
    path.parent.mkdir(parents=True)
    lines = [
        f"epsilon=3,0,{step},{step / 10},train_loss,{'nan' if step == 7 else 1 / (step + 1)}"
        for step in range(2500)
    ]
    # MLflow shows the larger of two values at a run's last step
    lines += [f"epsilon=3,0,{step},{step / 10},validation_accuracy,1" for step in (2000, 2499)]
    path.write_text("\n".join([",".join(records.HISTORY_COLUMNS), *lines]) + "\n")
    changed = {"replicas": record.replicas[2:3], "history": digest_file(path)}
    published = Store(root, settings, record.model_copy(update=changed))
    row, level = sorted(published.runs(), key=lambda run: run.data.tags["kind"], reverse=True)
    assert level.data.tags["mlflow.parentRunId"] == row.info.run_id
    assert level.info.run_name == f"{NAME}, ε = 3, seed 0 (Table 5)"
    assert (level.data.tags["kind"], level.data.tags["seeds"]) == ("level", "1")
    curve = published.client.get_metric_history(level.info.run_id, "train_loss")
    assert len(curve) == 2499  # the one that is no number is left out
    measured = record.replicas[2].metrics["validation_accuracy"]
    assert level.data.metrics["validation_accuracy"] == round(measured, 4) < 1
    validated = published.client.get_metric_history(level.info.run_id, "validation_accuracy")
    assert [point.step for point in validated] == [2000, 2499]


def test_an_account_is_published_without_a_history_and_with_its_mu(root: Path) -> None:
    account = {
        "paper": "nguyen2023",
        "table": "gdp",
        "label": "BN-LeNet-5, L = 8",
        "settings": {"sampling": "fixed", "examples": 54000, "batch": 64, "epochs": 50, "parts": 8},
        "levels": [{"noise_multiplier": 2.5}],
    }
    settings = parse({"raw": {}, "data": {}, "rows": {}, "accounts": {"nguyen-gdp": account}})
    ledger = example.ledger(2.4, mu=0.5199, epsilon_upper=2.0)
    record = example.made("nguyen-gdp", settings, lambda configured, seed: ({"mu": 0.5199}, ledger))
    (run,) = Store(root, settings, record).runs("tags.level = 'noise_multiplier=2.5'", "nguyen2023")
    assert (run.data.metrics["mu"], run.data.metrics["epsilon_proven"]) == (0.5199, 2.0)
    assert (run.data.params["method"], run.data.params["parts"]) == ("accounting", "8")
