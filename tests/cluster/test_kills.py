"""Rows side by side, whose trainers, launchers and coordinators are killed while they run."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dprepro.pipeline import params
from dprepro.pipeline.cluster import tasks
from dprepro.pipeline.results import records
from dprepro.pipeline.transport import dvclock
from tests.cluster import project
from tests.cluster.project import processes, trainers, until

ROW = "row-00"


def begun(folder: Path) -> set[str]:
    """Rows that have a checkpoint."""
    return {
        path.relative_to(folder / records.CHECKPOINTS).parts[0]
        for path in (folder / records.CHECKPOINTS).rglob("*.pt")
    }


def kill(*pids: int) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


def test_a_grid_that_is_stopped_and_killed_ends_as_an_unbroken_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row on somebody's own data, here and by a launcher, beside one that can't be trained."""
    folder, unbroken = tmp_path / "grid", tmp_path / "unbroken"
    long = project.row(0, epochs=12, data="mine")  # so long that no signal comes too late
    misfit = project.row(1, epochs=1, model={"name": "lenet5_tanh"})  # a network for larger images
    project.make(folder, {ROW: long, "misfit": misfit}, with_files=True)
    shutil.copytree(folder, unbroken)
    expected = project.unbroken(unbroken, ROW)
    shutil.copytree(unbroken / "data", folder / "data")

    def start(*arguments: str) -> subprocess.Popen[str]:
        return project.repro(folder, *arguments, "--checkpoint-every", "0.2")

    # a trainer, and then Ctrl-C: one line
    running = start(ROW)
    until(lambda: begun(folder), running)
    first = trainers(folder)
    kill(*first)
    until(lambda: trainers(folder) - first, running)
    running.send_signal(signal.SIGINT)
    said, _ = running.communicate(timeout=120)
    assert running.returncode == 130
    assert said.splitlines()[-1] == (
        "dprepro: stopped, what ran has a checkpoint; the same command goes on from there"
    )
    assert "row-00: died with status -9" in said
    assert not list(processes(folder))
    had, when = begun(folder), time.time()
    # a launcher, then the coordinator: what works for it ends by itself, and nothing is left of any of them
    running = start(ROW, "--on", f"{sys.executable} launcher.py")
    until(lambda: trainers(folder), running)
    first = trainers(folder)
    kill(*(pid for pid, line in processes(folder) if "launcher.py [" in line or "launcher.py /" in line))
    until(lambda: trainers(folder) - first, running)
    running.kill()
    assert running.stdout is not None
    assert "row-00: died with status -9" in running.stdout.read()
    running.wait()
    until(lambda: not list(processes(folder)))
    # to the end, whatever was left to do, beside a row that can't be trained
    running = start("--jobs", "2")
    said, _ = running.communicate(timeout=600)
    assert running.returncode == 1
    assert "1 done, 1 failed" in said
    # tried once, and told with its reason at the end
    assert re.search(r"^dprepro: misfit: failed, .*model 'lenet5_tanh' can't take images of ", said, re.M)
    assert (folder / ".dprepro/repro/logs/misfit.log").read_text().count("started on ") == 1
    # the unbroken run's numbers, from the first checkpoint on, and signed
    assert project.numbers(folder) == expected
    assert len(expected) == 2
    monkeypatch.chdir(folder)
    assert had == {ROW}
    assert records.read_run(ROW).trainings[0].started < when
    assert tasks.todo(params.load(), [ROW]) == []
    assert dvclock.dvc("status", *dvclock.stages_of(ROW)).strip() == "Data and pipelines are up to date."
