"""What there is to do and in which order, and the coordinator, with work that trains nothing."""

import hashlib
import json
import os
import time
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from filelock import FileLock

from dprepro.errors import UserError
from dprepro.pipeline import params
from dprepro.pipeline.cluster import coordinator, tasks
from dprepro.pipeline.cluster.coordinator import ENDED, RETRIES, environments, work
from dprepro.pipeline.cluster.tasks import RowWork
from dprepro.pipeline.files import write_text
from dprepro.pipeline.identity import validity
from dprepro.pipeline.identity.entries import entries
from dprepro.pipeline.results import records
from dprepro.pipeline.results.records import CHECKPOINTS
from dprepro.pipeline.transport import dvclock
from dprepro.stages.repro import repro
from tests.cluster import project
from tests.refusal import refusal_of

NOTHING = params.parse({"raw": {}, "data": {}, "rows": {}})


@pytest.fixture
def signed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What DVC was asked to sign, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    names: list[str] = []
    monkeypatch.setattr(dvclock, "sign", lambda settings, stages: names.extend(stages))
    return names


def task(name: str, **more: Any) -> RowWork:
    return RowWork(name, (("train", name),), **more)


def test_a_task_that_fails_stops_no_other_and_the_longest_comes_first(
    signed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = []

    def does(task: RowWork, *_: Any) -> float:
        tried.append(task.name)
        if task.name == "wrong":
            raise UserError("no such model")
        return 2.0

    monkeypatch.setattr(coordinator, "work", does)
    done, failed = coordinator.run(
        NOTHING, [task("short"), task("wrong", seconds=9), task("long", seconds=5)], (), 1
    )
    assert tried == ["wrong", "long", "short"]
    assert done == {"long": 2.0, "short": 2.0}
    assert failed == {"wrong": "failed, no such model (.dprepro/repro/logs/wrong.log)"}
    assert signed == [
        f"{stage}@{row}" for row in ("long", "short") for stage in ("train", "evaluate", "ledger")
    ]


@pytest.mark.parametrize("gets_on", [True, False])
def test_a_task_that_dies_is_tried_again_while_it_gets_on(
    signed: list[str], monkeypatch: pytest.MonkeyPatch, gets_on: bool
) -> None:
    tries: list[str] = []

    def died(task: RowWork, *_: Any) -> tuple[int, list[str]]:
        tries.append(task.name)
        if gets_on:
            checkpoint = CHECKPOINTS / task.name / "0.pt"
            checkpoint.parent.mkdir(parents=True, exist_ok=True)
            checkpoint.write_bytes(b"")
            later = time.time() + 1  # a file's clock may be a little slow
            os.utime(checkpoint, (later, later))
        return (-9, ["step 5"]) if len(tries) < 6 else (0, [])

    monkeypatch.setattr(coordinator, "_run", died)
    if gets_on:
        work(task("row"), (), {}, Event())
        assert len(tries) == 6
    else:
        with pytest.raises(UserError, match="died with status -9 after: step 5; 3 times with nothing done"):
            work(task("row"), (), {}, Event())
        assert len(tries) == RETRIES + 1


def test_the_own_error_of_a_command_is_not_tried_again_whatever_a_launcher_adds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lines = [
        "started on one",
        "dprepro: no row 'row'",
        f"{ENDED} 1",
        "srun: error: one: task 0: Exited with exit code 1",
    ]
    tries = []

    def fails(task: RowWork, *_: Any) -> tuple[int, list[str]]:
        tries.append(task.name)
        return 1, lines

    monkeypatch.setattr(coordinator, "_run", fails)
    assert refusal_of(lambda: work(task("row"), (), {}, Event())) == "no row 'row'"
    assert len(tries) == 1


def test_commands_run_one_after_the_other_until_one_fails(signed: list[str]) -> None:
    commands = (("--version",), ("nothing",), ("--help",))
    with pytest.raises(UserError):
        work(RowWork("row", commands), (), {}, Event())
    log = (tasks.LOGS / "row.log").read_text()
    assert "dprepro " in log
    assert "No such command" in log
    assert log.rstrip().endswith(f"{ENDED} 2")
    assert "Usage: dprepro [OPTIONS] COMMAND [ARGS]...\n\n Reproduce" not in log


def test_what_dvc_refuses_to_sign_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*_: Any) -> None:
        raise UserError("somebody else's DVC works here")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(dvclock, "sign", refuses)
    monkeypatch.setattr(coordinator, "work", lambda *_: 1.0)
    assert (
        refusal_of(lambda: coordinator.run(NOTHING, [task("row")], (), 1)) == "somebody else's DVC works here"
    )


def test_only_one_coordinator_works_in_a_folder(signed: list[str]) -> None:
    coordinator.LOCK.parent.mkdir(parents=True)
    with FileLock(coordinator.LOCK), pytest.raises(UserError, match="another `dprepro repro` works here"):
        coordinator.run(NOTHING, [task("row")], (), 1)


@pytest.mark.parametrize("on", ["", "no-such-command --gpus=1"])
def test_a_launcher_that_is_none(on: str) -> None:
    allowed = "allowed: local, or one such as 'srun --gpus=1'"
    assert refusal_of(lambda: repro(on=on)) == f"--on {on}: no such command; {allowed}"


def test_rows_that_need_a_gpu_wait_for_one_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    project.make(tmp_path, {"row-00": project.row(0, epochs=5, needs="gpu")})
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("dprepro.pipeline.identity.plan.gpu_here", lambda: False)
    monkeypatch.setattr(tasks, "missing_data", lambda settings, rows: [])
    repro()
    assert "0 done, 0 failed, 1 waiting for a GPU" in capsys.readouterr().out


def test_slots_here_share_cores_and_have_a_gpu_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,6")
    assert [(each["OMP_NUM_THREADS"], each["CUDA_VISIBLE_DEVICES"]) for each in environments(4)] == [
        *(("2", "4"), ("2", "6"), ("2", "4"), ("2", "6"))
    ]
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    monkeypatch.setattr(coordinator, "gpu_here", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 3)
    assert [each["CUDA_VISIBLE_DEVICES"] for each in environments(2)] == ["0", "1"]
    monkeypatch.setattr(coordinator, "gpu_here", lambda: False)
    assert environments(1) == [{"OMP_NUM_THREADS": "8"}]


def test_what_there_is_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project.make(tmp_path, {"row-00": project.row(0, epochs=5)} | project.CHAIN)
    monkeypatch.chdir(tmp_path)
    settings = params.load()
    # the row whose network is in the data comes first, though nobody named it
    assert tasks.rounds(settings, ["adlm"]) == [["relevant"], ["adlm"]]
    assert tasks.rounds(settings, settings.rows) == [["relevant"], ["row-00", "adlm"]]
    (adlm,) = tasks.todo(settings, ["adlm"], ("--device", "cpu"))
    assert adlm.commands == (("train", "adlm", "--device", "cpu"), ("evaluate", "adlm"), ("ledger", "adlm"))
    assert tasks.missing_data(settings, ["relevant"]) == ["prepare@mnist"]
    assert tasks.missing_data(settings, ["adlm"]) == ["prepare@mnist", "relevance@mnist-relevance"]


@pytest.mark.parametrize("changed", ["nothing", "version", "network"])
def test_data_of_another_network_or_version_are_joined_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: str
) -> None:
    """Though their settings are the same."""
    project.make(tmp_path, project.CHAIN)
    monkeypatch.chdir(tmp_path)
    settings = params.load()
    monkeypatch.setattr(tasks, "prepared_here", lambda name, settings: name)
    monkeypatch.setattr("dprepro.pipeline.pretrained.loading.check_joined", lambda data, settings: None)
    run = records.run_path("relevant")
    name, stage = "mnist-relevance", "relevance@mnist-relevance"
    read = hashlib.md5(b"before" if changed == "network" else b"of now").hexdigest()
    signed = {
        "deps": [{"path": run.as_posix(), "md5": read}],
        "params": {"reports/identity.json": {f"relevance.{name}": entries(settings)["relevance"][name]}},
    }
    Path("dvc.lock").write_text(json.dumps({"schema": "2.0", "stages": {stage: signed}}))
    if changed == "version":
        monkeypatch.setattr(validity, "AVERAGING", validity.AVERAGING + 1)
    monkeypatch.setattr(tasks, "rows_to_train", lambda settings, gpu: [])
    monkeypatch.setattr(tasks, "lacks_measuring", lambda key: True)
    write_text(run, "of now")
    assert tasks.missing_data(settings, ["adlm"]) == ([stage] if changed != "nothing" else [])


@pytest.mark.parametrize("missing", ["entry", "file", "nothing"])
def test_a_row_that_lacks_an_entry_or_a_file_has_its_ledger_computed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    project.make(tmp_path, {"row-00": project.row(0, epochs=5)})
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tasks, "rows_to_train", lambda settings, gpu: [])
    monkeypatch.setattr(tasks, "lacks_measuring", lambda key: False)
    settings, key, stages = params.load(), "row-00", {}
    for stage, paths in {
        "train": [records.run_path(key)],
        "evaluate": [records.evaluation_path(key)],
        "ledger": [records.ledger_path(key)],
    }.items():
        outs = [{"path": path.as_posix(), "md5": hashlib.md5(b"kept").hexdigest()} for path in paths]
        for path in paths:
            write_text(path, "kept")
        digest = {f"{stage}.{key}": entries(settings)[stage][key]}
        stages[f"{stage}@{key}"] = {"params": {"reports/identity.json": digest}, "outs": outs}
    if missing == "entry":
        del stages["train@row-00"]
    if missing == "file":
        records.ledger_path(key).unlink()
    Path("dvc.lock").write_text(json.dumps({"schema": "2.0", "stages": stages}))
    commands = [task.commands for task in tasks.todo(settings, [key])]
    assert commands == ([] if missing == "nothing" else [(("ledger", key),)])
