"""Rows on two local blocks of Parsl, one worker of which is killed."""

import os
import re
import shutil
import signal
import time
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock
from parsl.config import Config

from pipeline import params
from pipeline.cluster import coordinator, pools, slot, tasks
from pipeline.errors import UserError
from pipeline.results import records
from pipeline.training.checkpoints import CHECKPOINTS
from pipeline.transport import dvclock
from stages.repro import _longer
from tests.cluster import project
from tests.faults.cluster_kills import workers

ROWS = ("row-00", "row-01")
NOTHING = params.parse({"raw": {}, "data": {}, "rows": {}})
# a network for larger images
MISFIT = """\
  misfit:
    paper: davody2020
    table: t5
    label: misfit
    data: mnist
    model: {name: lenet5_tanh}
    method: dpsgd
    seeds: 1
    reproducible: true
    settings: {batch: 60, epochs: 1, learning_rate: 0.1}
    levels: [{epsilon: 3}]
"""


def test_a_killed_worker_and_a_row_that_cannot_be_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, other = tmp_path / "grid", tmp_path / "unbroken"
    for place in (folder, other):
        project.make(place, 2, epochs=5, chain=False)
        with (place / "params.yaml").open("a") as file:
            file.write(MISFIT)
    expected = project.unbroken(other, ROWS)
    shutil.copytree(other / "data", folder / "data")

    running = project.repro(folder, "--jobs", "2", "--checkpoint-every", "0.2")
    until = time.monotonic() + 300
    while not any((folder / CHECKPOINTS).rglob("*.pt")):
        assert running.poll() is None
        assert time.monotonic() < until
        time.sleep(0.1)
    begun = time.time()
    had = {path.relative_to(folder / CHECKPOINTS).parts[0] for path in (folder / CHECKPOINTS).rglob("*.pt")}
    os.kill(next(pid for pid, kind in workers(running.pid) if kind == "worker"), signal.SIGKILL)
    said, _ = running.communicate(timeout=600)

    assert running.returncode == 1
    assert "its worker died, tried again" in said
    assert "2 done, 1 failed" in said
    (misfit,) = [line for line in said.splitlines() if line.startswith("dprepro: ")]
    assert misfit.startswith("dprepro: misfit: failed: ")
    assert "32x32 are needed" in misfit
    # tried once
    assert (folder / ".dprepro/repro/logs/misfit.log").read_text().count("32x32 are needed") == 1
    assert project.numbers(folder) == expected
    # what had begun went on from its checkpoint
    monkeypatch.chdir(folder)
    for row in had - {"misfit"}:
        run = records.read_run(row)
        assert run is not None
        assert run.replicas[0].started < begun
    # signed, with the weights in DVC's cache
    left = tasks.todo(params.load())
    assert ([task.name for task in left.tasks], left.data, left.unsigned) == (["misfit"], (), ())
    assert dvclock.dvc(
        "status", *(f"{stage}@{row}" for row in ROWS for stage in dvclock.STAGES_OF_A_ROW)
    ).strip() == ("Data and pipelines are up to date.")


def test_what_there_is_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project.make(tmp_path, 2, epochs=5)
    monkeypatch.chdir(tmp_path)
    own = params.load()
    todo = tasks.todo(own, ["adlm"])
    assert [task.name for task in todo.data] == ["fetch@mnist", "fetch@kmnist", "prepare@mnist"]
    found = {task.name: task.after for task in todo.tasks}
    # the row behind its data comes with it
    assert found == {
        "relevance@mnist-relevance": {"relevant"},
        "adlm": {"relevance@mnist-relevance"},
        "relevant": set(),
    }
    assert {task.name for task in tasks.todo(own).tasks} == {*found, *ROWS}
    assert all(task.seconds for task in tasks.todo(own).tasks if task.trains)
    with pytest.raises(UserError, match="no row 'nowhere'"):
        tasks.todo(own, ["nowhere"])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "no such file; allowed: local, slurm, or a file"),
        ("config = 1 / 0", "ZeroDivisionError"),
        ("config = 3", "`config` must be a parsl.config.Config"),
        ("from parsl.config import Config\nconfig = Config()\nplace = 3", "`place` must be a function"),
        ("from parsl.config import Config\nconfig = Config()\nclone = '-x'", "`clone` must be the URL of a"),
    ],
)
def test_a_file_of_slots_that_is_none(tmp_path: Path, text: str | None, said: str) -> None:
    path = tmp_path / "slots.py"
    if text is not None:
        path.write_text(text)
    with pytest.raises(UserError, match=said):
        pools.pool(str(path), 4, NOTHING, 60.0)


SLOTS = """\
from parsl.config import Config
from parsl.executors import ThreadPoolExecutor

config = Config(executors=[ThreadPoolExecutor(label="small"), ThreadPoolExecutor(label="large")])

def place(row, needs):
    return {"row-00": "small", "row-01": "large"}.get(row, needs)
"""


def test_a_file_of_slots_that_places_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("slots.py").write_text(SLOTS)
    with closing(pools.pool("slots.py", 2, NOTHING, 60.0)()) as found:
        placed = [found.label(tasks.Task(row, (), ())) for row in ROWS]
        assert (found.labels, placed) == (("small", "large"), ["small", "large"])
        with pytest.raises(UserError, match="'cpu'; allowed: small, large"):
            found.label(tasks.Task("row-02", (), ()))
        jobs = [slot.Job((command,), str(tmp_path), "log") for command in (("--help",), ("nothing",))]
        ended = [found.submit("large", job).result() for job in jobs]
    assert [one.status for one in ended] == [0, 2]
    assert "Usage: dprepro" in Path("log").read_text()


def test_the_pages_files_of_slots_are_some() -> None:
    """As far as no cluster is needed: Parsl takes them, and rows are placed."""
    page = (Path(__file__).parents[2] / "docs/clusters.md").read_text()
    shared, apart = re.findall(r"^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    found: dict[str, Any] = {}
    exec(shared, found)
    assert isinstance(found["config"], Config)
    labels = {executor.label for executor in found["config"].executors}
    assert {found["place"](row, "cpu") for row in ("davody-t6-vgg", "davody-t5-lenet5")} == labels
    exec(apart, found)
    assert [executor.label for executor in found["config"].executors] == ["far"]
    assert found["clone"].endswith(".git")


def test_a_slot_says_how_many_threads_are_its_share() -> None:
    own = {"SLURM_CPUS_ON_NODE": "12", "PARSL_WORKER_COUNT": "4"}
    assert slot.environment(None, own) == {"OMP_NUM_THREADS": "3"}
    assert slot.environment(5, own) == {"OMP_NUM_THREADS": "5"}
    assert slot.environment(5, {**own, "OMP_NUM_THREADS": "1"}) == {}
    assert slot.environment(None, {"SLURM_CPUS_ON_NODE": "1", "PARSL_WORKER_COUNT": "4"}) == {
        "OMP_NUM_THREADS": "1"
    }


def test_only_one_coordinator_works_in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    pools.STATE.mkdir(parents=True)
    nothing = tasks.Todo((), (), ())
    said = "another `dprepro repro` works here"
    with FileLock(pools.STATE / "lock"), pytest.raises(UserError, match=said):
        coordinator.run(NOTHING, nothing, pools.Here, 1, print)


def test_hours_of_training_are_asked_about() -> None:
    """By what rows took before; those that need a GPU don't count, and what nobody knows doesn't either."""
    hour = [tasks.Task(str(number), (), (), seconds=1800.0) for number in range(4)]
    others = [tasks.Task("gpu", (), (), seconds=1e6, needs="gpu"), tasks.Task("new", (), ())]
    work = tasks.Todo((), (*hour, *others), ())
    assert _longer(work, 1) == timedelta(hours=2)
    assert _longer(work, 2) is None
