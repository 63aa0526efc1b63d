"""The loop: trainings together, resuming, checkpoints, locks, what is written."""

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from dprepro.accountants.calibration import noise_for
from dprepro.errors import Stopped, UserError
from dprepro.pipeline import params
from dprepro.pipeline.data import prepared
from dprepro.pipeline.data.fetch import fetch
from dprepro.pipeline.data.prepare import prepare
from dprepro.pipeline.data.prepared import Prepared, Split
from dprepro.pipeline.identity import validity
from dprepro.pipeline.identity.frozen import frozen_changed
from dprepro.pipeline.identity.validity import reason_invalid
from dprepro.pipeline.ledgers.rows import row_ledgers
from dprepro.pipeline.methods.base import Execution
from dprepro.pipeline.methods.noisy_weights.method import NoisyWeights
from dprepro.pipeline.methods.noisy_weights.settings import NoisyWeightsSettings
from dprepro.pipeline.methods.spending import statement
from dprepro.pipeline.models import networks
from dprepro.pipeline.models.model import Model
from dprepro.pipeline.models.networks import build_net
from dprepro.pipeline.params import Settings
from dprepro.pipeline.results import records
from dprepro.pipeline.results.schema import RowTrainings, TrainingRecord, TrainingSpent
from dprepro.pipeline.results.weights import weights_path
from dprepro.pipeline.training import evaluation, loop, rows, search
from dprepro.pipeline.training.checkpoints import Checkpoint
from dprepro.pipeline.training.loop import Context, FinishedTraining, Progress, SeedRun
from dprepro.pipeline.training.rows import check_inputs
from dprepro.pipeline.training.side_by_side import train_runs
from dprepro.stages.search import search as search_command
from dprepro.stages.train import train
from tests.conftest import dpsgd
from tests.faults.kills import in_child
from tests.refusal import refusal_of
from tests.training.running import context, quiet, weights


def checkpoint_in(folder: Path) -> Path:
    """The only one."""
    (path,) = folder.rglob("*.pt")
    return path


class Killed(Exception):
    """Stands for a kill in the middle of training."""


def train_noted(
    wanted: list[SeedRun], how: Context, after: int | None = None
) -> tuple[list[int], list[FinishedTraining]]:
    """The steps whose numbers the history got, up to a kill ``after`` so many, and what came of them."""
    steps: list[int] = []

    def show(state: Progress) -> None:
        steps.extend([state.step] if state.logged else [])
        if len(steps) == after:
            raise Killed

    if after is None:
        return steps, list(train_runs(wanted, replace(how, show=show)))
    with pytest.raises(Killed):
        list(train_runs(wanted, replace(how, show=show, checkpoint_every=0.0)))
    return steps, []


def test_a_resumed_run_gives_what_an_unbroken_one_gives(
    tiny: Prepared, cpu: Execution, tmp_path: Path
) -> None:
    wanted = [SeedRun("epsilon=3", seed, dpsgd(epochs=4, batch=50)) for seed in range(2)]
    wanted.append(SeedRun("epsilon=inf", 0, dpsgd(epochs=4, batch=50, epsilon="inf", momentum=0.5)))
    unbroken = list(train_runs(wanted, context(tiny, cpu, tmp_path / "unbroken")))
    broken = context(tiny, cpu, tmp_path / "broken")
    before, _ = train_noted(wanted, broken, after=3)
    again, resumed = train_noted(wanted, broken)
    assert again[0] == before[-1]  # it went on one step back, where the last checkpoint was
    for key, value in weights(unbroken).items():
        assert torch.equal(value, weights(resumed)[key])
    assert [finished.history for finished in resumed] == [finished.history for finished in unbroken]


def test_a_run_resumed_without_seeds_draws_anew_and_counts_all_its_processor_time(
    tiny: Prepared, cpu: Execution, tmp_path: Path
) -> None:
    wanted = [SeedRun("epsilon=3", 0, dpsgd(epochs=2))]
    fresh, begun = context(tiny, cpu, tmp_path / "one", reproducible=False), time.process_time()
    train_noted(wanted, fresh, after=1)
    _, _, content = checkpoint_in(tmp_path / "one").read_bytes().partition(b"\n")
    saved = torch.load(io.BytesIO(content), weights_only=True)
    # state of the model and the clock, nothing from which a stream could be drawn again
    assert set(saved) == {"state", "done", "history", "seconds", "cpu_seconds", "started", "entropy"}
    assert saved["entropy"] is None
    assert set(saved["state"]) == {"parameters", "momentum"}
    shutil.copytree(tmp_path / "one", tmp_path / "other")
    one, other = (
        list(train_runs(wanted, replace(fresh, checkpoint=tmp_path / name))) for name in ("one", "other")
    )
    assert not torch.equal(weights(one)["epsilon=3", 0], weights(other)["epsilon=3", 0])
    assert 0 < saved["cpu_seconds"] < one[0].cpu_seconds < time.process_time() - begun


@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_training_after_the_step_with_a_checkpoint(
    tiny: Prepared, cpu: Execution, tmp_path: Path, by: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "SHOW_EVERY", float("inf"))  # else a slow machine shows a step before the last
    # whoever starts the tests in the background has them ignore it
    signal.signal(signal.SIGINT, signal.default_int_handler)
    wanted = [SeedRun("epsilon=3", 0, dpsgd())]
    whole = weights(train_runs(wanted, context(tiny, cpu, tmp_path / "whole")))
    stopped = context(tiny, cpu, tmp_path / "stopped", show=lambda _: signal.raise_signal(by))
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with pytest.raises(Stopped, match=r"step 5 of 5; the same command goes on from there") as problem:
        list(train_runs(wanted, stopped))
    assert problem.value.status == 128 + by
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == handlers
    kept = Checkpoint.restore(checkpoint_in(tmp_path / "stopped"), cpu.device)
    assert kept.done == 5
    resumed = weights(train_runs(wanted, replace(stopped, show=quiet)))
    assert torch.equal(resumed["epsilon=3", 0], whole["epsilon=3", 0])


PARAMS = """
source: {kind: synthetic}
raw:
  mnist: {train: 400, test: 60}
  kmnist: {train: 40, test: 10}
data:
  mnist: {raw: mnist, train: 300, validation: 100, public: {raw: kmnist, count: 8}}
rows:
  quick:
    paper: davody2020
    table: t5
    label: DPSGD (LN-LeNet-5)
    data: mnist
    model: {name: lenet5, normalization: layer}
    method: dpsgd
    seeds: 2
    reproducible: true
    settings: {batch: 30, epochs: 1, learning_rate: 0.2, clip: 1.0, delta: 1e-3}
    levels: [{epsilon: 3}, {epsilon: .inf}]
  noisy:
    paper: davody2020
    table: t2
    label: BN-LeNet-300-100
    data: mnist
    model: {name: lenet_300_100, normalization: running_bn}
    method: noisy_weights
    seeds: 2
    reproducible: true
    settings: {batch: 30, epochs: 3, learning_rate: 0.01, draws: 4}
    levels: [{sigma: 0.1}, {sigma: 0.2, batch: 20}, {sigma: 300, learning_rate: 0.001}]
searches:
  quick:
    row: quick
    grid: {learning_rate: [0.01, 0.1, 0.5]}
    settings: {epochs: 2}
    levels: [{epsilon: 3}]
"""


@pytest.fixture(scope="module")
def prepared_project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with params.yaml and prepared synthetic data."""
    root = tmp_path_factory.mktemp("prepared")
    (root / "params.yaml").write_text(PARAMS)
    settings = params.load(root / "params.yaml")
    for name in settings.raw:
        fetch(name, settings, root)
    prepare("mnist", settings, root)
    return root


@pytest.fixture(scope="module")
def trained_project(prepared_project: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with the row `quick` trained, measured and accounted for."""
    root = tmp_path_factory.mktemp("trained") / "project"
    shutil.copytree(prepared_project, root)
    settings, data = loaded(root)
    how = Execution(torch.device("cpu"), physical=64)
    rows.train("quick", settings, data, how, quiet, 1e9, root)
    evaluation.evaluate("quick", settings, data, how, root)
    row_ledgers("quick", settings, root)
    return root


@pytest.fixture
def project(prepared_project: Path, tmp_path: Path) -> Path:
    """A project of the test's own, in which nothing has been trained."""
    return shutil.copytree(prepared_project, tmp_path / "project")


@pytest.fixture
def done(trained_project: Path, tmp_path: Path) -> Path:
    """A project of the test's own with the results of `quick`."""
    return shutil.copytree(trained_project, tmp_path / "done")


def loaded(project: Path) -> tuple[Settings, Prepared]:
    return params.load(project / "params.yaml"), prepared.load("mnist", project)


def changed(declared: Settings, **changes: Any) -> Settings:
    """Settings with other values in the row `quick`."""
    everything = declared.model_dump(mode="json", exclude_none=True)
    everything["rows"]["quick"] |= changes
    return params.parse(everything)


def grow(root: Path, settings: Settings, data: Prepared, how: Execution) -> int:
    """Train, measure and account for what `quick` lacks."""
    trained = rows.train("quick", settings, data, how, quiet, 1e9, root)
    evaluation.evaluate("quick", settings, data, how, root)
    row_ledgers("quick", settings, root)
    return trained


def names(root: Path) -> list[tuple[str, int]]:
    run = records.read_run("quick", root)
    return [(training.level, training.seed) for training in run.trainings]


def kept(root: Path, trainings: list[tuple[str, int]]) -> dict[str, Any]:
    """Everything that is kept of some trainings of `quick`: weights by their bytes, the rest as it reads."""
    record = records.read("quick", loaded(root)[0].row("quick"), root)
    run = records.read_run("quick", root)
    return {
        "weights": [weights_path("quick", *name, root).read_bytes() for name in trainings],
        "run": [training for training in run.trainings if (training.level, training.seed) in trainings],
        "origins": [
            training.origin for training in run.trainings if (training.level, training.seed) in trainings
        ],
        "record": [training for training in record.trainings if (training.level, training.seed) in trainings],
    }


def test_what_a_row_lacks_is_trained_and_what_stands_is_left_alone(done: Path, cpu: Execution) -> None:
    settings, data = loaded(done)
    levels = [{"epsilon": 3}, {"epsilon": 5}, {"epsilon": float("inf")}]
    changes, new = {"levels": levels}, [("epsilon=5", 0), ("epsilon=5", 1)]
    old = names(done)
    before = kept(done, old)
    assert grow(done, changed(settings, **changes), data, cpu) == 2
    assert sorted(names(done)) == sorted([*old, *new])
    assert kept(done, old) == before
    run = records.read_run("quick", done)
    made = [training.origin for training in run.trainings if (training.level, training.seed) in new]
    assert made == [run.origins[1]] * 2
    assert len(kept(done, new)["record"]) == 2
    # in the order of params.yaml, whenever they were trained
    declared = changed(settings, **changes).row("quick")
    assert names(done) == [(training.level, training.seed) for training in rows.declared(declared)]


def test_a_training_that_is_no_longer_declared_goes(done: Path, cpu: Execution) -> None:
    settings, data = loaded(done)
    left = [("epsilon=3", 0), ("epsilon=inf", 0)]
    before = kept(done, left)
    assert grow(done, changed(settings, seeds=1), data, cpu) == 0
    assert names(done) == left
    assert kept(done, left) == before
    # and that it was seen is kept; this row is seeded, so that nothing bounds what that told
    run = records.read_run("quick", done)
    assert [gone.seed for gone in run.replaced if isinstance(gone, TrainingRecord)] == [1, 1]
    assert [*run.replaced_spent()] == [None, None]
    assert sorted(path.name for path in (done / "runs/quick").iterdir()) == [
        "epsilon=3,seed=0.safetensors",
        "epsilon=inf,seed=0.safetensors",
    ]


def test_other_settings_data_and_versions_train_anew(
    done: Path, cpu: Execution, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, data = loaded(done)
    settings = before.model_dump(mode="json")["rows"]["quick"]["settings"] | {"clip": 2.0}
    other = changed(before, settings=settings, seeds=1)
    run = records.read_run("quick", done)
    assert run.origins[0].made_by == {"method": 1, "model": 1}

    def why(declared: Settings, data: Prepared = data) -> str | None:
        return reason_invalid(run.trainings[0], declared.rows["quick"], data, frozen_changed)

    digests = {"train.inputs": "sha256:other"}
    assert why(before) is None
    assert why(before, replace(data, manifest={**data.manifest, "digests": digests})) == "data"
    assert why(other) == "settings"
    for part in ("method", "model"):
        raised = run.origins[0].made_by | {part: 2}
        for module in (validity, rows):
            monkeypatch.setattr(module, "training_versions", lambda method, model, raised=raised: raised)
        assert why(before) == f"{part} version"
    assert grow(done, other, data, cpu) == 2
    assert grow(done, other, data, cpu) == 0
    trained = records.read_run("quick", done)
    assert [made.made_by for made in trained.origins] == [raised]


def test_a_killed_process_keeps_what_is_done_and_resumes_to_the_unbroken_numbers(
    project: Path, trained_project: Path, cpu: Execution, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, data = loaded(project)
    saved: list[int] = []

    def save_and_kill(checkpoint: Checkpoint, path: Path) -> None:
        """Save, and kill the process in the middle of the second training."""
        save(checkpoint, path)
        saved.append(checkpoint.done)
        if saved == [*range(1, 11), *range(1, 6)]:
            os.kill(os.getpid(), signal.SIGKILL)

    save = Checkpoint.save
    monkeypatch.setattr(Checkpoint, "save", save_and_kill)
    status, _ = in_child(lambda: rows.train("quick", settings, data, cpu, quiet, 0.0, project), project)
    assert status == -signal.SIGKILL
    done = names(project)
    assert done == [("epsilon=3", 0)]  # one seed of every level before the next seed
    written = weights_path("quick", *done[0], project).read_bytes()
    steps_done = [
        Checkpoint.restore(path, torch.device("cpu")).done
        for path in (project / records.CHECKPOINTS).rglob("*.pt")
    ]
    assert sorted(steps_done) == [5, 10]
    # and a machine with the packages for training alone, and no network, can do it
    absent = ("dvc", "mlflow", "parsl", "torchtext", "pandas", "matplotlib", "jinja2", "PIL", "requests")
    bare = f"import socket, sys; sys.modules.update(dict.fromkeys({absent})); socket.socket.connect = None"
    line = [sys.executable, "-c", f"{bare}\nfrom dprepro.stages.app import main; main()"]
    line += ["train", "quick", "--physical", "64"]
    # as in this process: more threads add up in another order, and training enlarges the difference
    one_thread = {**os.environ, "OMP_NUM_THREADS": "1"}
    again = subprocess.run(line, cwd=project, capture_output=True, text=True, env=one_thread)
    assert again.returncode == 0, again.stderr
    assert "3 trained, 1 stand" in again.stdout
    assert weights_path("quick", *done[0], project).read_bytes() == written
    for name in names(project):
        actual, expected = (
            load_file(weights_path("quick", *name, root)) for root in (project, trained_project)
        )
        for key, value in expected.items():
            torch.testing.assert_close(actual[key], value, rtol=1e-4, atol=1e-5)
    assert names(project) == names(trained_project)
    lengths = [
        [{name: len(points) for name, points in each.curves.items()} for each in run.trainings]
        for run in (records.read_run("quick", root) for root in (project, trained_project))
    ]
    assert lengths[0] == lengths[1]
    assert not list((project / records.CHECKPOINTS).rglob("*.pt"))


def test_noise_that_protects_has_a_bound_along_the_way(project: Path, cpu: Execution) -> None:
    settings, data = loaded(project)
    grow(project, changed(settings, reproducible=False, seeds=1), data, cpu)
    record = records.read("quick", settings.row("quick"), project)
    private = record.trainings[0].ledger
    assert private.claimed == pytest.approx(3, rel=0.02)
    steps, spent = zip(*private.spent, strict=True)
    curves = records.read_run("quick", project).trainings[0].curves
    assert list(steps) == sorted({step for points in curves.values() for step, *_ in points})
    assert list(spent) == sorted(spent)
    assert spent[-1] == pytest.approx(private.claimed, rel=0.01)
    assert spent[-1] >= private.epsilon_upper
    assert record.trainings[1].ledger.spent == ()  # without noise nothing bounds it
    assert (record.trainings[0].noise, private.noise) == ("grid", "grid")
    # a ledger of other noise is another training's
    run = records.read_run("quick", project)
    older = run.model_dump(mode="json", exclude={"trainings": {"__all__": {"noise"}}})
    records.write(RowTrainings.model_validate(older), project)
    with pytest.raises(UserError, match="accounts for another training"):
        records.read("quick", settings.row("quick"), project)


def test_noisy_weights_are_evaluated_as_a_mean_over_draws(project: Path, cpu: Execution) -> None:
    declared, data = loaded(project)
    rows.train("noisy", declared, data, cpu, quiet, 1e9, project)
    evaluation.evaluate("noisy", declared, data, cpu, project)
    row_ledgers("noisy", declared, project)
    record = records.read("noisy", declared.row("noisy"), project)
    # the record is in the order of the levels, not of the seeds
    assert [training.level for training in record.trainings] == ["sigma=0.1"] * 2 + ["sigma=0.2"] * 2 + [
        "sigma=300"
    ] * 2
    for training in record.trainings:
        saved = load_file(weights_path("noisy", training.level, training.seed, project))
        assert saved["2.mean"].shape == (300,)  # running averages are part of the model
        settings = NoisyWeightsSettings.model_validate(training.settings)
        task = loop.make_task(
            SeedRun(training.level, training.seed, settings), declared.rows["noisy"].model, True, data, cpu
        )
        method = NoisyWeights(task, settings, "running_bn")
        actual = [
            loop.accuracy(method.predictor(method.network(saved, draw)), data.splits["test"], cpu)
            for draw in range(4)
        ]
        assert training.metrics["test_accuracy"] == pytest.approx(np.mean(actual))
        assert training.metrics["test_accuracy_draws_std"] == pytest.approx(np.std(actual, ddof=1))
        assert training.metrics["converged"] == (training.metrics["validation_accuracy"] > 0.15)
        assert training.ledger.epsilon_upper is None
        assert training.ledger.reasons == (statement("noisy_weights"),)
    assert record.trainings[0].metrics["converged"] == 1
    assert record.trainings[4].metrics["converged"] == 0  # nothing is seen through such noise


def test_a_row_without_validation_examples_is_trained_and_tested(project: Path, cpu: Execution) -> None:
    (project / "params.yaml").write_text(
        PARAMS.partition("searches:")[0].replace("train: 300, validation: 100", "train: 400, validation: 0")
    )
    prepare("mnist", params.load(project / "params.yaml"), project)
    settings, data = loaded(project)
    assert len(data.splits["validation"]) == 0
    rows.train("quick", settings, data, cpu, quiet, 1e9, project)
    evaluation.evaluate("quick", settings, data, cpu, project)
    row_ledgers("quick", settings, project)
    for training in records.read("quick", settings.rows["quick"], project).trainings:
        assert training.metrics.keys() == {"test_accuracy", "converged"}
        assert training.metrics["converged"] == (training.metrics["test_accuracy"] > 0.15)
    curves = records.run_path("quick", project).read_text()
    assert "train_loss" in curves
    assert "accuracy" not in curves


def test_two_processes_never_train_the_same_row(project: Path, cpu: Execution) -> None:
    settings, data = loaded(project)

    def second(_: Progress) -> None:
        # whatever of the row it would train
        rows.train("quick", changed(settings, seeds=1), data, cpu, quiet, 1e9, project)

    with pytest.raises(UserError, match="held by another process"):
        rows.train("quick", settings, data, cpu, second, 1e9, project)


class Later(Model):
    """Settings of a model with one that these records don't have."""

    later: int = 0


def test_a_search_judges_on_validation_and_writes_down_every_candidate(project: Path, cpu: Execution) -> None:
    settings, data = loaded(project)
    del data.splits["test"]  # a search that looks at test data can't run
    logged: list[int] = []

    def show(state: Progress) -> None:
        logged.extend([state.step] if state.logged else [])

    results = json.loads(search.search("quick", settings, data, cpu, show, project).read_text())
    assert logged == [20, 20, 20]  # after the last step alone
    assert len(results["candidates"]) == 3
    best = max(results["candidates"], key=lambda candidate: candidate["validation_accuracy"][0])
    assert results["chosen"] == {"epsilon=3": best["settings"]}
    # what each spent stands in the record, where no later edit of params.yaml can lower it
    for candidate in results["candidates"]:
        spent = TrainingSpent.model_validate(candidate["spent"])
        assert (spent.spending.rate, spent.steps, spent.delta) == (0.1, 20, 1e-3)
        assert spent.spending.noise_multiplier == pytest.approx(noise_for(3.0, 1e-3, 0.1, 20, "rdp"))
    assert not list((project / records.CHECKPOINTS).glob("search-*/*"))
    # it stands, also where its row has taken in the choice
    again = json.loads(search.search("quick", settings, data, cpu, quiet, project).read_text())
    assert again == results
    # and where a setting came later, which is at its default
    row = settings.rows["quick"]
    model = Later.model_validate(row.model.model_dump())
    later = {"rows": {**settings.rows, "quick": row.model_copy(update={"model": model})}}
    search.search("quick", settings.model_copy(update=later), data, cpu, quiet, project)
    assert records.read_search("quick", project).replaced == ()
    # another search of the same name: the first one's trainings were seen, and were seeded
    twice = settings.searches["quick"].model_copy(update={"seeds": 2})
    other = settings.model_copy(update={"searches": {"quick": twice}})
    again = json.loads(search.search("quick", other, data, cpu, quiet, project).read_text())
    assert again["replaced"] == [{"trainings": 3, "spent": None}]
    # but not one on other private data, whose budget would no longer count these trainings
    record = records.read_search("quick", project)
    private = {"edition": {"mine": "own"}, "declared": "sha256:other"}
    elsewhere = record.model_copy(
        update={"provenance": record.provenance.model_copy(update=private), "definition": "sha256:other"}
    )
    records.write(elsewhere, project)
    with pytest.raises(UserError, match="searched on mine, too; allowed: another name"):
        search.search("quick", other, data, cpu, quiet, project)
    assert records.read_search("quick", project) == elsewhere


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        (lambda: train("nothing"), "params.yaml: no row 'nothing'; there are: noisy, quick"),
        (lambda: train("quick", device="cuda:9"), "--device cuda:9: not usable here"),
        (lambda: train("quick", device="gpu"), "--device gpu: not usable here"),
        (lambda: search_command("nothing"), "params.yaml: no search 'nothing'; there are: quick"),
    ],
)
def test_a_mistake_is_one_clear_line(
    prepared_project: Path, monkeypatch: pytest.MonkeyPatch, action: Callable[[], None], expected: str
) -> None:
    monkeypatch.chdir(prepared_project)
    assert expected in refusal_of(action)


def test_a_full_disk_leaves_the_old_run(done: Path, cpu: Execution, monkeypatch: pytest.MonkeyPatch) -> None:
    settings, data = loaded(done)
    old = names(done)
    before = kept(done, old)
    more, rename = changed(settings, seeds=3), os.replace
    run = records.run_path("quick", done)
    for full in (weights_path("quick", "epsilon=3", 2, done), run):

        def failing(source: Path, target: Path, full: Path = full) -> None:
            if target == full:
                raise OSError(28, "No space left on device", str(full))
            rename(source, target)

        with monkeypatch.context() as patched:
            patched.setattr(os, "replace", failing)
            with pytest.raises(UserError, match="can't be written: No space left on device"):
                rows.train("quick", more, data, cpu, quiet, 1e9, done)
        assert names(done) == old
        assert kept(done, old) == before
        assert not [path for path in (done / "runs/quick").iterdir() if path.suffix != ".safetensors"]
    assert grow(done, more, data, cpu) == 2
    assert kept(done, old) == before


def test_a_ledger_needs_neither_weights_nor_data(done: Path) -> None:
    path = records.ledger_path("quick", done)
    before = path.read_bytes()
    path.unlink()
    for folder in ("runs", "data", "reports/evaluations"):
        shutil.rmtree(done / folder)
    row_ledgers("quick", params.load(done / "params.yaml"), done)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("built", "shape", "says"),
    [
        # noise and clipping need to know every weight
        (nn.LazyLinear(4), (12,), "weight: has no size before data pass through it"),
        (nn.Linear(12, 3), (12,), "makes (2, 3) of two inputs; needed: (2, 4)"),
        (nn.Linear(12, 4).double(), (12,), "weight: torch.float64; allowed: torch.float32"),
        (nn.Linear(12, 4).requires_grad_(False), (12,), "no parameter has requires_grad"),
        (  # its running averages would be lost after training
            nn.Sequential(nn.Linear(12, 4), nn.BatchNorm1d(4)),
            (12,),
            "buffer '1.running_mean' changes with the inputs",
        ),
        (None, (12,), "`build` returned NoneType; needed: a torch.nn.Module"),
        (KeyError("width"), (12,), "can't be built for inputs of shape (12,): KeyError: 'width'"),
        (  # a token less than there are
            nn.Sequential(nn.Embedding(49, 2), nn.Flatten(), nn.Linear(12, 4)),
            (6, 50),
            "can't be built for inputs of shape (6, 50): IndexError",
        ),
    ],
)
def test_a_network_that_cannot_be_trained_is_one_clear_line(
    built: Any, shape: tuple[int, ...], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    build = Mock(side_effect=[built])  # which raises what is an exception
    mine = SimpleNamespace(load=lambda: SimpleNamespace(build=build), path=Path("lab/models/mine.py"))
    monkeypatch.setattr(networks, "extensions", lambda kind: {"mine": mine})
    line = refusal_of(lambda: build_net(Model.model_construct(name="mine"), shape, 4))
    assert line.startswith("lab/models/mine.py: model 'mine'")
    assert says in line
    assert "\n" not in line


def test_a_planned_run_carries_the_digest_of_its_plan(project: Path, cpu: Execution) -> None:
    settings, data = loaded(project)
    raw = settings.model_dump()
    raw["plans"] = {"davody2020-t5": {"seeds": 5, "margin": 1.0, "budget": "ours", "search": "none"}}
    raw["rows"]["quick"] |= {"plan": "davody2020-t5", "seeds": 5, "budget": "own"}
    planned = params.parse(raw)
    assert rows.provenance_of("quick", settings, data, cpu).plan is None
    assert rows.provenance_of("quick", planned, data, cpu).plan == planned.plan_digest("quick")


def scaled(data: Prepared, factor: float) -> Prepared:
    train = data.splits["train"]
    inputs = train.inputs.astype(np.float32) / 255 * factor
    return replace(data, splits={**data.splits, "train": Split(inputs, train.labels)})


def test_laplace_noise_is_for_features_between_0_and_1(tiny: Prepared) -> None:
    for method in ("ilm", "adlm"):
        check_inputs(tiny, method)
        check_inputs(scaled(tiny, 1.0), method)
        with pytest.raises(UserError, match=r"inputs lie between 0 and .*for features in \[0, 1\]"):
            check_inputs(scaled(tiny, 2.0), method)
        with pytest.raises(UserError, match="nan"):
            check_inputs(scaled(tiny, float("nan")), method)
    check_inputs(scaled(tiny, 2.0), "dpsgd")  # whose clipping bounds what any input does
