"""The loop: replicas together, resuming, checkpoints, locks, what is written."""

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from pipeline.data.prepared import Prepared
from pipeline.errors import UserError
from pipeline.methods.base import Execution
from pipeline.methods.noisy_weights.method import NoisyWeights
from pipeline.methods.noisy_weights.settings import NoisyWeightsSettings
from pipeline.methods.registry import build_net
from pipeline.models.model import Model
from pipeline.params import Settings
from pipeline.privacy.spending import Spending
from pipeline.results import evaluation, records
from pipeline.training import loop as training
from pipeline.training import runs
from pipeline.training.checkpoints import CHECKPOINTS
from pipeline.training.loop import Group, Progress, Replica, train_replicas
from tests.conftest import dpsgd

LAYER = Model(name="lenet5", normalization="layer")


def quiet(_: Progress) -> None:
    pass


def run(
    wanted: list[Replica], data: Prepared, how: Execution, folder: Path, reproducible: bool = True
) -> list[Group]:
    return train_replicas(wanted, LAYER, "dpsgd", reproducible, data, how, quiet, folder, 1e9)


def weights(groups: list[Group]) -> dict[tuple[str, int], torch.Tensor]:
    return {
        (replica.level, replica.seed): torch.cat([v[i].flatten() for v in group.state["parameters"].values()])
        for group in groups
        for i, replica in enumerate(group.replicas)
    }


def test_ten_replicas_together_give_what_ten_single_runs_give(
    tiny: Prepared, cpu: Execution, tmp_path: Path
) -> None:
    wanted = [
        Replica(f"epsilon={own.epsilon:g}", seed, own)
        for own in (dpsgd(), dpsgd(epsilon=8, clip=0.5))
        for seed in range(5)
    ]
    together = weights(run(wanted, tiny, replace(cpu, replicas_at_once=None), tmp_path / "together"))
    for number, replica in enumerate(wanted):
        single = weights(run([replica], tiny, cpu, tmp_path / str(number)))
        key = (replica.level, replica.seed)
        torch.testing.assert_close(together[key], single[key], rtol=1e-4, atol=1e-5)
    assert len({tuple(value[:5].tolist()) for value in together.values()}) == 10


class Killed(Exception):
    """Stands for a kill in the middle of training."""


@pytest.mark.parametrize("at", [1, 3])
def test_a_resumed_run_gives_what_an_unbroken_one_gives(
    tiny: Prepared, cpu: Execution, tmp_path: Path, at: int
) -> None:
    wanted = [Replica("epsilon=3", seed, dpsgd(epochs=4, batch=50)) for seed in range(2)]
    wanted.append(Replica("epsilon=inf", 0, dpsgd(epochs=4, batch=50, epsilon="inf", momentum=0.5)))
    unbroken = run(wanted, tiny, cpu, tmp_path / "unbroken")
    calls = []

    def note(state: Progress) -> None:
        if state.noted:
            calls.append(state.step)

    def kill(state: Progress) -> None:
        note(state)
        if len(calls) == at:
            raise Killed

    arguments = (wanted, LAYER, "dpsgd", True, tiny, cpu)
    with pytest.raises(Killed):
        train_replicas(*arguments, kill, tmp_path / "broken", 0.0)
    resumed = train_replicas(*arguments, note, tmp_path / "broken", 0.0)
    assert calls[at] == calls[at - 1]  # it went on one step back, where the last checkpoint was
    for key, value in weights(unbroken).items():
        assert torch.equal(value, weights(resumed)[key])
    assert [group.history for group in resumed] == [group.history for group in unbroken]


def test_noisy_weights_resume_with_moments_and_averages(
    tiny: Prepared, cpu: Execution, tmp_path: Path
) -> None:
    model = Model(name="lenet5", normalization="running_bn")
    own = NoisyWeightsSettings(batch=50, epochs=3, learning_rate=0.01, sigma=0.5)
    arguments = ([Replica("sigma=0.5", 0, own)], model, "noisy_weights", True, tiny, cpu)

    def kill(state: Progress) -> None:
        if state.step == 8:
            raise Killed

    unbroken = train_replicas(*arguments, quiet, tmp_path / "unbroken", 1e9)
    with pytest.raises(Killed):
        train_replicas(*arguments, kill, tmp_path / "broken", 0.0)
    resumed = train_replicas(*arguments, quiet, tmp_path / "broken", 0.0)
    for group in unbroken[0].state:
        for name, value in unbroken[0].state[group].items():
            assert torch.equal(value, resumed[0].state[group][name])
    assert resumed[0].history == unbroken[0].history


def test_a_run_resumed_without_seeds_draws_anew(tiny: Prepared, cpu: Execution, tmp_path: Path) -> None:
    wanted = [Replica("epsilon=3", 0, dpsgd(epochs=2))]

    def kill(state: Progress) -> None:
        raise Killed

    arguments = (wanted, LAYER, "dpsgd", False, tiny, cpu)
    with pytest.raises(Killed):
        train_replicas(*arguments, kill, tmp_path / "one", 0.0)
    shutil.copytree(tmp_path / "one", tmp_path / "other")
    ends = [weights(train_replicas(*arguments, quiet, tmp_path / name, 0.0)) for name in ("one", "other")]
    assert not torch.equal(ends[0]["epsilon=3", 0], ends[1]["epsilon=3", 0])


def test_fresh_noise_is_never_the_same_and_never_saved(
    tiny: Prepared, cpu: Execution, tmp_path: Path
) -> None:
    wanted = [Replica("epsilon=3", 0, dpsgd())]
    first = weights(run(wanted, tiny, cpu, tmp_path / "1", reproducible=False))
    second = weights(run(wanted, tiny, cpu, tmp_path / "2", reproducible=False))
    assert not torch.equal(first["epsilon=3", 0], second["epsilon=3", 0])
    saved = torch.load(tmp_path / "1" / "group0.pt", weights_only=True)
    # state of the model and the clock, nothing from which a stream could be drawn again
    assert set(saved) == {"state", "done", "history", "seconds", "started", "entropy"}
    assert saved["entropy"] is None
    assert set(saved["state"]) == {"parameters", "momentum", "running"}


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
    settings: {batch: 30, epochs: 6, learning_rate: 0.2, clip: 1.0, delta: 1e-3}
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
    grid: {learning_rate: [0.01, 0.5], model.unnormalized: [0, 1]}
    settings: {epochs: 0.5}
    levels: [{epsilon: 3}]
"""


# as in this process: another number of threads adds up in another order, and training enlarges the difference
ONE_THREAD = {**os.environ, "OMP_NUM_THREADS": "1"}


def command(*arguments: str, before: str = "") -> list[str]:
    return [sys.executable, "-c", f"{before}\nfrom stages.app import main; main()", *arguments]


def dprepro(*arguments: str, cwd: Path, before: str = "") -> subprocess.CompletedProcess[str]:
    line = command(*arguments, before=before)
    return subprocess.run(line, cwd=cwd, capture_output=True, text=True, timeout=120, env=ONE_THREAD)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with params.yaml and prepared synthetic data."""
    from pipeline import params
    from pipeline.data.fetch import fetch
    from pipeline.data.prepare import prepare

    root = tmp_path_factory.mktemp("project")
    (root / "params.yaml").write_text(PARAMS)
    loaded = params.load(root / "params.yaml")
    for name in loaded.raw:
        fetch(name, loaded, root)
    prepare("mnist", loaded, root)
    return root


def loaded(project: Path) -> tuple[Settings, Prepared]:
    from pipeline import params
    from pipeline.data import prepared

    return params.load(project / "params.yaml"), prepared.load("mnist", project)


def test_a_killed_process_resumes_to_the_unbroken_numbers(project: Path, cpu: Execution) -> None:
    own, data = loaded(project)
    unbroken = training.train("quick", own, data, cpu, quiet, 1e9, project)
    expected = torch.load(unbroken / "weights.pt", weights_only=True)
    curves = (unbroken / "history.csv").read_text()
    process = subprocess.Popen(
        command("train", "quick", "--checkpoint-every", "0", "--physical", "64"),
        cwd=project,
        stdout=subprocess.PIPE,
        text=True,
        env=ONE_THREAD,
    )
    checkpoints = project / CHECKPOINTS
    deadline = time.monotonic() + 60
    while not list(checkpoints.glob("*/group0.pt")) and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert (unbroken / "weights.pt").exists()  # the finished run is untouched until the new one is whole
    (saved,) = checkpoints.glob("*/group0.pt")
    done = torch.load(saved, weights_only=True)["done"]
    assert 0 < done < 60
    # and a machine with the packages for training alone, and no network, can do it
    absent = ("dvc", "mlflow", "torchvision", "torchtext", "pandas", "matplotlib", "jinja2")
    bare = f"import socket, sys; sys.modules.update(dict.fromkeys({absent})); socket.socket.connect = None"
    again = dprepro("train", "quick", "--physical", "64", cwd=project, before=bare)
    assert again.returncode == 0, again.stderr
    found = torch.load(unbroken / "weights.pt", weights_only=True)
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-4, atol=1e-5)
    assert (unbroken / "history.csv").read_text().count("\n") == curves.count("\n")
    assert not list(checkpoints.glob("*/group0.pt"))


def test_evaluation_writes_a_record_that_says_what_it_bought(project: Path, cpu: Execution) -> None:
    own, data = loaded(project)
    training.train("quick", own, data, cpu, quiet, 1e9, project)
    evaluation.evaluate("quick", own, data, cpu, project)
    record = records.read("quick", project)
    assert record is not None
    assert [(r.level, r.seed) for r in record.replicas] == [
        ("epsilon=3", 0), ("epsilon=3", 1), ("epsilon=inf", 0), ("epsilon=inf", 1),
    ]  # fmt: skip
    private, open_ = record.replicas[0].ledger, record.replicas[2].ledger
    assert private.claimed == pytest.approx(3, rel=0.02)
    assert private.accounted is None  # the row is reproducible
    assert "seeded" in str(private.reason)
    opinions = {opinion.accountant.split(" ")[0]: opinion.epsilon for opinion in private.opinions}
    assert opinions["pld"] < opinions["rdp"]  # type: ignore[operator]
    assert open_.claimed is None
    assert open_.event is None
    assert record.replicas[2].metrics["test_accuracy"] > 0.5
    assert record.provenance.edition == {"mnist": "synthetic", "kmnist": "synthetic"}
    rows = list(csv.DictReader(records.history_path("quick", project).open()))
    assert tuple(rows[0]) == records.HISTORY_COLUMNS
    final = [
        r
        for r in rows
        if r["metric"] == "validation_accuracy" and r["seed"] == "1" and r["level"] == "epsilon=3"
    ]
    assert float(final[-1]["value"]) == pytest.approx(record.replicas[1].metrics["validation_accuracy"])
    spent = [float(r["value"]) for r in rows if r["metric"] == "epsilon_spent" and r["seed"] == "0"]
    assert spent == sorted(spent)
    assert spent[-1] == pytest.approx(private.claimed, rel=0.01)


def test_noisy_weights_are_evaluated_as_a_mean_over_draws(project: Path, cpu: Execution) -> None:
    own, data = loaded(project)
    folder = training.train("noisy", own, data, cpu, quiet, 1e9, project)
    evaluation.evaluate("noisy", own, data, cpu, project)
    record = records.read("noisy", project)
    assert record is not None
    # two batch sizes are two groups; the record is in their order, each replica with its own weights
    assert [one.level for one in record.replicas] == ["sigma=0.1"] * 2 + ["sigma=300"] * 2 + ["sigma=0.2"] * 2
    saved = torch.load(folder / "weights.pt", weights_only=True)
    assert saved["2.mean"].shape == (6, 300)  # running averages are part of the model
    for index, one in enumerate(record.replicas):
        settings = NoisyWeightsSettings.model_validate(one.settings)
        task = training.make_task(
            [Replica(one.level, one.seed, settings)], own.rows["noisy"].model, True, data, cpu
        )
        method = NoisyWeights(task, [settings], "running_bn")
        model = {name: value[index : index + 1] for name, value in saved.items()}
        found = [
            training.accuracy(
                training.predictor(method, method.network(model, draw)), 1, data.splits["test"], cpu
            ).item()
            for draw in range(4)
        ]
        assert one.metrics["test_accuracy"] == pytest.approx(np.mean(found))
        assert one.metrics["test_accuracy_draws_std"] == pytest.approx(np.std(found, ddof=1))
        assert one.metrics["converged"] == (one.metrics["validation_accuracy"] > 0.15)
        assert one.ledger.accounted is None
        assert "no privacy" in str(one.ledger.reason)
    assert record.replicas[0].metrics["converged"] == 1
    assert record.replicas[2].metrics["converged"] == 0  # nothing is seen through such noise


def test_a_vocabulary_of_private_texts_is_in_the_ledger(project: Path) -> None:
    _, data = loaded(project)
    texts = Prepared(data.name, data.splits, {**data.manifest, "text": {"vocabulary": 9}})
    spending = Spending(sampling="poisson", noise_multiplier=2.0, examples=100, batch=10)
    spent = {"spending": spending, "delta": 1e-5, "claimed_by": "rdp", "broken": None}
    trained = runs.Trained(
        level="epsilon=3", seed=0, settings={}, steps=9, uncounted=[], seconds=1, started=0, ended=1, **spent
    )
    assert any("vocabulary" in use for use in evaluation.ledger(trained, None, False, texts).uncounted)
    assert not any("vocabulary" in use for use in evaluation.ledger(trained, None, False, data).uncounted)


def test_evaluation_refuses_a_run_of_other_settings(project: Path, cpu: Execution) -> None:
    own, data = loaded(project)
    training.train("quick", own, data, cpu, quiet, 1e9, project)
    from pipeline.params import parse

    changed = own.model_dump(mode="json", exclude_none=True)
    changed["rows"]["quick"]["settings"]["clip"] = 2.0
    with pytest.raises(UserError, match="trained with other settings"):
        evaluation.evaluate("quick", parse(changed), data, cpu, project)
    other = Prepared(data.name, data.splits, {**data.manifest, "digests": {"train.inputs": "sha256:other"}})
    with pytest.raises(UserError, match="trained on other data"):
        evaluation.evaluate("quick", own, other, cpu, project)
    with pytest.raises(UserError, match="not trained yet; run `dprepro train quick` first"):
        evaluation.evaluate("quick", own, data, cpu, project / "elsewhere")


def test_two_processes_never_train_the_same_row(project: Path, cpu: Execution) -> None:
    own, data = loaded(project)

    def second(_: Progress) -> None:
        training.train("quick", own, data, cpu, quiet, 1e9, project)

    with pytest.raises(UserError, match="held by another process"):
        training.train("quick", own, data, cpu, second, 1e9, project)


def test_a_search_judges_on_validation_and_writes_down_every_candidate(project: Path, cpu: Execution) -> None:
    from pipeline.training import search

    own, data = loaded(project)
    del data.splits["test"]  # a search that looks at test data can't run
    found = json.loads(search.search("quick", own, data, cpu, quiet, project).read_text())
    assert len(found["candidates"]) == 4
    best = max(found["candidates"], key=lambda candidate: candidate["validation_accuracy"][0])
    assert found["chosen"] == {"epsilon=3": best["settings"]}
    assert not list((project / CHECKPOINTS).glob("search-*/*"))


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("train", "nothing"), "params.yaml: no row 'nothing'; there are: noisy, quick"),
        (("train", "quick", "--device", "cuda"), "--device cuda: not usable here"),
        (("train", "quick", "--device", "gpu"), "--device gpu: not usable here"),
        (("search", "nothing"), "params.yaml: no search 'nothing'; there are: quick"),
    ],
)
def test_a_mistake_is_one_clear_line(project: Path, arguments: tuple[str, ...], expected: str) -> None:
    if "cuda" in arguments and torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    result = dprepro(*arguments, cwd=project)
    assert result.returncode == 1
    assert len(result.stderr.strip().splitlines()) == 1
    assert expected in result.stderr


def test_a_full_disk_leaves_the_old_run(
    project: Path, cpu: Execution, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, data = loaded(project)
    folder = training.train("quick", own, data, cpu, quiet, 1e9, project)
    before, there = (folder / "run.json").read_text(), sorted(folder.parent.iterdir())

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device", str(folder))

    rename = Path.rename

    def full_at_the_end(self: Path, target: Path) -> Path:
        if target == folder and not self.name.endswith(".old"):
            full()
        return rename(self, target)

    for place, name, failing in ((os, "replace", full), (Path, "rename", full_at_the_end)):
        with monkeypatch.context() as patched:
            patched.setattr(place, name, failing)
            with pytest.raises(UserError, match="can't be written: No space left on device"):
                training.train("quick", own, data, cpu, quiet, 1e9, project)
        assert (folder / "run.json").read_text() == before
        assert sorted(folder.parent.iterdir()) == there


def test_damaged_weights_are_one_clear_line(project: Path, cpu: Execution) -> None:
    own, data = loaded(project)
    folder = training.train("quick", own, data, cpu, quiet, 1e9, project)
    (folder / "weights.pt").write_bytes(b"")
    with pytest.raises(UserError, match=r"weights\.pt: missing or damaged; run `dprepro train quick` again"):
        evaluation.evaluate("quick", own, data, cpu, project)


def test_a_model_that_does_not_fit_is_one_clear_line() -> None:
    groups = Model(name="lenet5", normalization="group", groups=4)
    with pytest.raises(UserError, match="model 'lenet5' can't be built for inputs of shape"):
        build_net(groups, (1, 28, 28), 10)
    with pytest.raises(UserError, match="can't be built for inputs of shape"):
        build_net(Model(name="lenet5"), (64,), 4)


def test_a_gpu_that_is_too_small_is_one_line() -> None:
    from stages.train import enough_memory

    with (
        pytest.raises(
            UserError, match="--device cuda: out of memory; lower --physical or --replicas-at-once"
        ),
        enough_memory("cuda"),
    ):
        raise torch.cuda.OutOfMemoryError
