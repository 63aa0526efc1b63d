"""The graph of tasks, with work that trains nothing; and the slots that there can be."""

import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event
from typing import Any

import parsl
import pytest
from filelock import FileLock
from parsl.config import Config
from parsl.executors import ThreadPoolExecutor

from dprepro.errors import Stopped, UserError
from dprepro.pipeline import params
from dprepro.pipeline.cluster import coordinator, executors, tasks, worker
from dprepro.pipeline.cluster.coordinator import Summary
from dprepro.pipeline.cluster.executors import Slots
from dprepro.pipeline.cluster.tasks import Todo
from dprepro.pipeline.cluster.worker import CommandFailed, Died, Done, NeedsGpu, Task
from dprepro.pipeline.training.checkpoints import CHECKPOINTS
from dprepro.pipeline.transport import dvclock
from dprepro.stages.repro import repro
from tests.cluster import project
from tests.cluster.project import until, workers
from tests.params.good import GOOD
from tests.refusal import refusal_of

NOTHING = params.parse({"raw": {}, "data": {}, "rows": {}})
Work = Callable[[Task], None]


@pytest.fixture
def signed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What DVC was asked to sign, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    names: list[str] = []
    monkeypatch.setattr(dvclock, "sign", lambda settings, stages: names.extend(stages))
    yield names
    assert parsl.DataFlowKernelLoader._dfk is None


def task(name: str, *after: str, **more: Any) -> Task:
    return Task(name, (("train", name),), (f"train@{name}",), frozenset(after), **more)


def run(*tasks: Task, does: Work, ending: Event | None = None) -> Summary:
    """As `dprepro repro` runs them, on two slots that do something else."""

    def work(task: Task, folder: str, inputs: list[Done]) -> Done:
        assert len(inputs) == len(task.after)
        does(task)
        return Done(1.0, "a machine")

    config = Config(executors=[ThreadPoolExecutor(max_threads=2)], strategy="none")
    slots = Slots(config, work=work, ending=ending or Event())
    return coordinator.run(NOTHING, Todo(tasks, ()), slots, lambda lines: None)


def test_a_task_that_fails_stops_those_alone_that_need_it(signed: list[str]) -> None:
    tried = []

    def does(task: Task) -> None:
        tried.append(task.name)
        if task.name == "wrong":
            raise CommandFailed("no such model")
        if task.name == "large":
            raise NeedsGpu("here")

    summary = run(
        task("wrong"),
        task("behind", "wrong"),
        task("last", "behind"),
        task("large"),
        task("tuned", "large"),
        task("right", seconds=5.0),
        task("next", "right"),
        does=does,
    )
    assert sorted(tried) == ["large", "next", "right", "wrong"]  # each once
    assert tried.index("right") < tried.index("next")
    assert summary.done.keys() == {"right", "next"}
    assert summary.failed == {
        "wrong": "no such model (.dprepro/repro/logs/wrong.log)",
        "behind": "needs wrong",
        "last": "needs behind",
    }
    assert summary.waits_for_gpu == ["large", "tuned"]
    assert sorted(signed) == ["train@next", "train@right"]


def test_a_worker_that_dies_is_tried_again_while_the_row_gets_on(
    signed: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    tries: list[str] = []

    def does(task: Task) -> None:
        tries.append(task.name)
        if task.name == "slow" and tries.count("slow") < 6:
            checkpoint = CHECKPOINTS / "slow/0.pt"
            checkpoint.parent.mkdir(parents=True, exist_ok=True)
            checkpoint.write_bytes(b"")
            later = time.time() + 1  # a file's clock may be a little slow
            os.utime(checkpoint, (later, later))
            raise Died("killed")
        if task.name == "deadly":
            raise Died("killed")

    summary = run(task("slow"), task("deadly"), does=does)
    assert tries.count("slow") == 6
    assert tries.count("deadly") == 3
    assert summary.done.keys() == {"slow"}
    (why,) = summary.failed.values()
    assert why.startswith("its worker died 3 times with nothing done between: killed")
    said = capsys.readouterr().out
    assert said.count("slow: its worker died, tried again: killed") == 5
    assert said.count("deadly: its worker died, tried again: killed") == 2


def test_a_signal_leaves_a_checkpoint_and_begins_nothing_more(signed: list[str]) -> None:
    ending, tried = Event(), []

    def does(task: Task) -> None:
        tried.append(task.name)
        if task.name == "done":
            return
        if not ending.is_set():
            os.kill(os.getpid(), signal.SIGTERM)
        assert ending.wait(60)
        raise CommandFailed("stopped")

    with pytest.raises(Stopped, match="the same command goes on from there"):
        run(task("done", seconds=9.0), task("running", "done"), does=does, ending=ending)
    assert tried == ["done", "running"]
    assert signed == ["train@done"]


def test_what_dvc_refuses_to_sign_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuses(*_: Any) -> None:
        raise UserError("somebody else's DVC works here")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(dvclock, "sign", refuses)
    assert run(task("row"), does=lambda task: None).failed.keys() == {"dvc.lock"}
    assert "not signed yet: somebody else's DVC works here" in capsys.readouterr().out


def test_only_one_coordinator_works_in_a_folder(signed: list[str]) -> None:
    executors.STATE.mkdir(parents=True)
    with (
        FileLock(executors.STATE / "lock"),
        pytest.raises(UserError, match="another `dprepro repro` works here"),
    ):
        run(task("row"), does=lambda task: None)


def test_slots_that_all_break_end_it(signed: list[str]) -> None:
    Path("slots.py").write_text(
        project.SLOTS.replace("max_blocks=2", "max_blocks=1, worker_init='exit 3'").replace(
            "heartbeat_period=1,", "heartbeat_period=1, block_error_handler=True,"
        )
    )
    with pytest.raises(UserError, match=r"^HighThroughputExecutor: no slot works: .*EXIT CODE: 3"):
        coordinator.run(NOTHING, Todo((task("row"),), ()), executors.slots("slots.py", 1), lambda lines: None)


@pytest.mark.parametrize(("on", "jobs"), [("local", 1), ("slurm", 4)])
def test_a_row_alone_has_every_core(on: str, jobs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def slots(on: str, jobs: int) -> Slots:
        raise UserError(f"{on}: {jobs}")

    row = task("one", "prepare@mnist")
    monkeypatch.setattr(params, "load", lambda: params.parse(GOOD))
    monkeypatch.setattr(tasks, "todo", lambda *_: Todo((task("prepare@mnist"), row), ()))
    monkeypatch.setattr(executors, "slots", slots)
    assert refusal_of(lambda: repro(jobs=4, on=on)) == f"{on}: {jobs}"


@pytest.mark.parametrize(
    ("text", "jobs", "said"),
    [
        (None, 1, "no such file; allowed: local, slurm, or a file"),
        ("config = 1 / 0", 1, "ZeroDivisionError"),
        ("config = 3", 1, "`config` must be a parsl.config.Config"),
        ("from parsl.config import Config\nconfig = Config()\nplace = 3", 1, "`place` must be a function"),
        ("", 2, "sets the number of rows at once"),
    ],
)
def test_a_file_of_slots_that_is_none(tmp_path: Path, text: str | None, jobs: int, said: str) -> None:
    path = tmp_path / "slots.py"
    if text is not None:
        path.write_text(text)
    with pytest.raises(UserError, match=said):
        executors.slots(str(path), jobs)


def test_the_pages_file_of_slots_is_one() -> None:
    """As far as no cluster is needed: Parsl takes it, and rows are placed."""
    page = (Path(__file__).parents[2] / "docs/clusters.md").read_text()
    (text,) = re.findall(r"^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    told: dict[str, Any] = {}
    exec(text, told)
    assert isinstance(told["config"], Config)
    labels = {executor.label for executor in told["config"].executors}
    assert {told["place"](row, "cpu") for row in ("davody-t6-vgg", "davody-t5-lenet5")} == labels


SLOTS = """\

config = Config(executors=[ThreadPoolExecutor(label="small"), ThreadPoolExecutor(label="large")])

def place(row, needs):
    return {"row-00": "small", "row-01": "large"}.get(row, needs)
"""


def test_a_file_of_slots_that_places_rows(signed: list[str]) -> None:
    Path("slots.py").write_text(SLOTS)
    slots = executors.slots("slots.py", 1)
    with slots.started(lambda problem, record: 9, 0) as submit:
        done = submit(Task("row-00", (("--help",),)), [])
        wrong = submit(Task("row-01", (("nothing",),)), [done])
        assert [future.task_record["executor"] for future in (done, wrong)] == ["small", "large"]
        assert done.result().seconds > 0
        with pytest.raises(CommandFailed):
            wrong.result()
        with pytest.raises(UserError, match="'cpu' for row-02; allowed: small, large"):
            submit(Task("row-02", ()), [])
    assert "Usage: dprepro" in worker.LOGS.joinpath("row-00.log").read_text()
    assert "No such command" in worker.LOGS.joinpath("row-01.log").read_text()


# Slurm's commands, for jobs that are processes of this machine
SBATCH = 'setsid bash "$1" >/dev/null 2>&1 </dev/null & echo "Submitted batch job $!"'
SQUEUE = """for id in $(echo "$*" | sed "s/.*--job '*//; s/'//g; s/,/ /g"); do
kill -0 $id 2>/dev/null && echo "$id R" || echo "$id CD"; done"""
SCANCEL = 'for id in "$@"; do kill -- -$id; done'


def test_jobs_of_slurm_take_tasks_and_are_cancelled(
    signed: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By stand-ins of its commands; `test_slurm.py` has a real one."""
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    (tmp_path / "bin").mkdir()
    scripts = {"sbatch": SBATCH, "squeue": SQUEUE, "scancel": SCANCEL, "sacct": "exit 1"}
    for name, script in scripts.items():
        path = tmp_path / "bin" / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
    with executors.slots("slurm", 1).started(lambda problem, record: 9, 0) as submit:
        first = submit(Task("row-00", (("--version",),)), [])
        assert submit(Task("row-01", (("--version",),)), [first]).result(120).seconds > 0
        assert [kind for _, kind in workers(tmp_path)].count("pool") == 1
    until(lambda: not list(workers(tmp_path)))


def test_a_slot_says_how_many_threads_are_its_share() -> None:
    given = {"SLURM_CPUS_ON_NODE": "12", "PARSL_WORKER_COUNT": "4"}
    assert worker.share_of_cores(given) == {"OMP_NUM_THREADS": "3"}
    assert worker.share_of_cores({**given, "OMP_NUM_THREADS": "1"}) == {}
    assert worker.share_of_cores({**given, "SLURM_CPUS_ON_NODE": "1"}) == {"OMP_NUM_THREADS": "1"}


def test_slots_here_share_cores_and_gpus(signed: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[dict[str, str]] = []
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,6")
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    monkeypatch.setattr(executors, "work", lambda task, folder, given, ending: told.append(given))
    slots = executors.slots("local", 4)
    for _ in range(5):
        slots.work(task("row"), "", [])
    numbers = [(given["OMP_NUM_THREADS"], given["CUDA_VISIBLE_DEVICES"]) for given in told]
    assert numbers == [("2", "4"), ("2", "6"), ("2", "4"), ("2", "6"), ("2", "4")]
