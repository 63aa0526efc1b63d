"""What there is to do, and in which order."""

import hashlib
import json
from datetime import timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dprepro.errors import UserError
from dprepro.pipeline import params
from dprepro.pipeline.cluster import tasks
from dprepro.pipeline.cluster.costs import OPERATIONS, costs, gpu_hours, operations
from dprepro.pipeline.cluster.tasks import longest_path_first
from dprepro.pipeline.cluster.worker import Task
from dprepro.pipeline.files import write_text
from dprepro.pipeline.identity import versions
from dprepro.pipeline.identity.entries import entries
from dprepro.pipeline.results import records
from dprepro.pipeline.results.records import GPU_HOURS
from dprepro.stages.app import app
from dprepro.stages.repro import _longer
from tests.cluster import project

ROOT = Path(__file__).parents[2]


def task(name: str, seconds: float, *after: str) -> Task:
    return Task(name, (("train", name),), (), frozenset(after), seconds)


def test_the_longest_way_comes_first_and_nothing_before_its_inputs() -> None:
    chain = [
        task("short", 1),
        task("long", 50),
        task("last", 80, "joined"),
        task("joined", 0, "behind", "relevance@there"),
        task("behind", 5),
    ]
    assert [task.name for task in longest_path_first(chain)] == ["behind", "joined", "last", "long", "short"]


def test_what_there_is_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = {"row-00": project.row(0, epochs=5), "row-01": project.row(1, epochs=5, data="mine")}
    project.make(tmp_path, rows | project.CHAIN, with_files=True)
    monkeypatch.chdir(tmp_path)
    settings = params.load()
    todo = tasks.todo(settings, ["adlm"], options=("--device", "cpu"))
    # the row behind its data comes with it
    assert {task.name: set(task.after) for task in todo.tasks} == {
        "fetch@mnist": set(),
        "fetch@kmnist": set(),
        "prepare@mnist": {"fetch@mnist", "fetch@kmnist"},
        "relevant": {"prepare@mnist"},
        "relevance@mnist-relevance": {"relevant", "prepare@mnist"},
        "adlm": {"relevance@mnist-relevance"},
    }
    assert [task.name for task in todo.tasks if task.here] == ["fetch@mnist", "fetch@kmnist", "prepare@mnist"]
    assert [task.name for task in todo.tasks if task.named] == ["adlm"]
    (adlm,) = (task for task in todo.tasks if task.name == "adlm")
    assert adlm.commands == (("train", "adlm", "--device", "cpu"), ("evaluate", "adlm"), ("ledger", "adlm"))
    whole = {task.name: task for task in tasks.todo(settings).tasks}
    assert whole.keys() == {task.name for task in todo.tasks} | {*rows, "own@mine", "prepare@mine"}
    # also on somebody's own data, as many of images as large
    assert whole["row-01"].seconds == pytest.approx(
        whole["row-00"].seconds * settings.data["mine"].train / settings.data["mnist"].train, rel=0.1
    )
    assert whole["row-01"].seconds > 0
    said = CliRunner().invoke(app, ["plan", "row-01"], catch_exceptions=False).output
    assert said.splitlines()[0].startswith("row-01: 1 replicas (never ran); about 0:0")
    assert "by its operations" in said
    assert "row-00" not in said
    with pytest.raises(UserError, match="no row 'nowhere'"):
        tasks.todo(settings, ["nowhere"])


def test_a_network_that_stands_needs_its_own_data_to_be_joined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a clone: the network has no data here, and they are others than those it is joined with."""
    project.make(tmp_path, project.CHAIN | {"relevant": project.CHAIN["relevant"] | {"data": "apart"}})
    monkeypatch.chdir(tmp_path)
    lacking = [row for row in tasks.plan(params.load(), gpu=True) if row.row != "relevant"]
    monkeypatch.setattr(tasks, "plan", lambda settings, gpu: lacking)
    monkeypatch.setattr(tasks, "lacks_measuring", lambda key: key != "relevant")
    todo = {task.name: task for task in tasks.todo(params.load(), ["adlm"]).tasks}
    assert todo["relevant"].commands == (("ledger", "relevant"),)
    assert "prepare@apart" in todo
    assert "prepare@apart" in todo["relevance@mnist-relevance"].after


@pytest.mark.parametrize("changed", [False, True])
def test_raw_files_of_another_declaration_are_fetched_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: bool
) -> None:
    project.make(tmp_path, {"row-00": project.row(0, epochs=5)})
    monkeypatch.chdir(tmp_path)
    settings = params.load()
    digests = {raw: entries(settings)["fetch"][raw] for raw in settings.raw}
    stages = {
        f"fetch@{raw}": {"params": {"reports/identity.json": {f"fetch.{raw}": digest}}}
        for raw, digest in digests.items()
    }
    Path("dvc.lock").write_text(json.dumps({"schema": "2.0", "stages": stages}))
    for raw in settings.raw:
        (tasks.RAW / raw).mkdir(parents=True)
    if changed:
        write_text(
            Path("params.yaml"), Path("params.yaml").read_text().replace('"train": 700', '"train": 800')
        )
    fetched = {task.name for task in tasks.todo(params.load()).tasks if task.commands[0][0] == "fetch"}
    assert fetched == ({"fetch@mnist"} if changed else set())


@pytest.mark.parametrize("present", [True, False])
def test_an_account_or_audit_without_its_file_is_computed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, present: bool
) -> None:
    """Though the lock has it."""
    project.make(tmp_path, {"row-00": project.row(0, epochs=5)})
    monkeypatch.chdir(tmp_path)
    declared = json.loads(Path("params.yaml").read_text())
    spent = {"sampling": "poisson", "examples": 60000, "batch": 600, "epochs": 1, "delta": 1e-5}
    told = {"paper": "mine", "table": "t1", "label": "made up", "levels": [{"noise_multiplier": 2}]}
    declared["accounts"] = {"spent": told | {"settings": spent}}
    write_text(Path("params.yaml"), json.dumps(declared))
    settings, stages = params.load(), {}
    for kind, key, path in (
        ("account", "spent", records.ledger_path("spent")),
        ("audit", "row-00", records.audit_path("row-00")),
    ):
        if present:
            write_text(path, "kept")
        digest = {f"{kind}.{key}": entries(settings)[kind][key]}
        out = {"path": path.as_posix(), "md5": hashlib.md5(b"kept").hexdigest()}
        stages[f"{kind}@{key}"] = {"params": {"reports/identity.json": digest}, "outs": [out]}
    Path("dvc.lock").write_text(json.dumps({"schema": "2.0", "stages": stages}))
    again = {task.name for task in tasks.todo(settings, audit=True).tasks} & stages.keys()
    assert again == (set() if present else stages.keys())


@pytest.mark.parametrize("changed", ["nothing", "version", "network"])
def test_data_of_another_network_or_version_are_joined_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: str
) -> None:
    """Though their settings are the same, and the network stands."""
    project.make(tmp_path, project.CHAIN)
    monkeypatch.chdir(tmp_path)
    settings = params.load()
    monkeypatch.setattr(tasks, "plan", lambda settings, gpu: [])
    monkeypatch.setattr(tasks, "lacks_measuring", lambda key: False)
    monkeypatch.setattr(tasks.prepared, "load", lambda name: None)
    monkeypatch.setattr(tasks, "check_joined", lambda data, settings: None)
    run = records.run_path("relevant")
    write_text(run, "of now")
    name, stage = "mnist-relevance", "relevance@mnist-relevance"
    read = hashlib.md5(b"before" if changed == "network" else b"of now").hexdigest()
    signed = {
        "deps": [{"path": run.as_posix(), "md5": read}],
        "params": {"reports/identity.json": {f"relevance.{name}": entries(settings)["relevance"][name]}},
    }
    Path("dvc.lock").write_text(json.dumps({"schema": "2.0", "stages": {stage: signed}}))
    if changed == "version":
        monkeypatch.setattr(versions, "AVERAGING", versions.AVERAGING + 1)
    todo = {task.name: task for task in tasks.todo(settings, ["adlm"]).tasks}
    assert (stage in todo) is (changed != "nothing")
    assert (todo["adlm"].commands[0][0] == "train") is (changed != "nothing")


def test_operations_and_gpu_hours_are_those_of_the_rows_as_they_are_now() -> None:
    """Else `python -m dprepro.pipeline.cluster.costs` writes them anew."""
    assert operations(params.load(ROOT / "params.yaml")) == json.loads((ROOT / OPERATIONS).read_text())
    assert gpu_hours(params.load(ROOT / "params.yaml")) == json.loads((ROOT / GPU_HOURS).read_text())


def test_algorithm_1_is_counted_with_its_joint_batch_for_every_example() -> None:
    settings = params.load(ROOT / "params.yaml")
    row = settings.rows["davody-t5-bn-lenet5-literal"]  # in batches of 256, with 128 public images
    apart = row.model_copy(update={"model": row.model.model_copy(update={"normalization": "public_bn"})})
    for joint, alone in zip(costs(row, settings), costs(apart, settings), strict=True):
        assert joint.operations == pytest.approx(alone.operations * (256 + 128))


def test_hours_of_training_are_asked_about(monkeypatch: pytest.MonkeyPatch) -> None:
    """By what rows took before; those that need a GPU count if they run here."""
    monkeypatch.setattr("dprepro.pipeline.identity.plan.gpu_here", lambda: False)
    hour = [task(str(number), 1800) for number in range(4)]
    work = tasks.Todo((*hour, Task("gpu", (), seconds=7200, needs="gpu")), ())
    assert _longer(work, 1) == timedelta(hours=2)
    assert _longer(work, 2) is None
    # a named row is tried without a GPU too
    named = tasks.Todo((Task("gpu", (), seconds=7200, needs="gpu", named=True),), ())
    assert _longer(named, 1) == timedelta(hours=2)
    monkeypatch.setattr("dprepro.pipeline.identity.plan.gpu_here", lambda: True)
    assert _longer(work, 1) == timedelta(hours=4)
