"""Rows side by side, whose trainers, workers and coordinators are killed while they run."""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from pipeline import params
from pipeline.cluster import tasks
from pipeline.results import records
from pipeline.training.checkpoints import CHECKPOINTS
from pipeline.transport import dvclock
from tests.cluster import project
from tests.cluster.project import workers
from tests.there import there

ROWS = ("row-00", "row-01")
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


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A checkout with the data of its rows, one's own of the last, and the numbers of their unbroken runs."""
    folder = tmp_path_factory.mktemp("made") / "grid"
    project.make(folder, len(ROWS), epochs=4, own=True)
    with (folder / "params.yaml").open("a") as file:
        file.write(MISFIT)
    unbroken = folder.with_name("unbroken")
    shutil.copytree(folder, unbroken)
    expected = project.unbroken(unbroken, ROWS)
    shutil.copytree(unbroken / "data", folder / "data")
    return folder, expected


def until(happened: Callable[[], object], running: subprocess.Popen[str] | None = None) -> None:
    end = time.monotonic() + 300
    while not happened():
        assert running is None or running.poll() is None, running.communicate()[0]
        assert time.monotonic() < end
        time.sleep(0.05)


def begun(folder: Path) -> set[str]:
    """Rows that have a checkpoint."""
    return {path.relative_to(folder / CHECKPOINTS).parts[0] for path in (folder / CHECKPOINTS).rglob("*.pt")}


def trainers(folder: Path) -> set[int]:
    return {pid for pid, kind in workers(folder) if kind == "trainer"}


def kill(folder: Path, kind: str) -> None:
    os.kill(next(pid for pid, what in workers(folder) if what == kind), signal.SIGKILL)


def test_a_grid_that_is_stopped_and_killed_ends_as_an_unbroken_one(
    made: tuple[Path, dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, expected = tmp_path / "grid", made[1]
    shutil.copytree(made[0], folder)

    def start() -> subprocess.Popen[str]:
        return project.repro(folder, "--jobs", "2", "--checkpoint-every", "0.2")

    # Ctrl-C: one line
    running = start()
    until(lambda: begun(folder), running)
    running.send_signal(signal.SIGINT)
    said, _ = running.communicate(timeout=120)
    assert running.returncode == 130
    assert said.splitlines()[-1] == (
        "dprepro: stopped, what ran has a checkpoint; the same command goes on from there"
    )
    assert "its worker died" not in said
    assert not list(workers(folder))
    had, when = begun(folder), time.time()
    # a killed trainer, and a row that can't be trained
    running = start()
    until(lambda: trainers(folder), running)
    kill(folder, "trainer")
    said, _ = running.communicate(timeout=600)
    assert running.returncode == 1
    assert "its worker died, tried again: ended by signal" in said
    assert "2 done, 1 failed" in said
    # tried once, and told with its reason at the end
    assert "dprepro: misfit: failed: model 'lenet5_tanh' can't be built" in said
    assert (folder / ".dprepro/repro/logs/misfit.log").read_text().count("misfit: on ") == 1
    check(folder, ROWS, expected, had, when, monkeypatch)


def test_workers_of_parsl_that_are_killed_and_their_coordinator(
    made: tuple[Path, dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, expected = tmp_path / "grid", made[1]
    shutil.copytree(made[0], folder)

    def start() -> subprocess.Popen[str]:
        return project.repro(folder, ROWS[0], "--on", "slots.py", "--checkpoint-every", "0.2")

    running = start()
    until(lambda: begun(folder), running)
    had, when, first = begun(folder), time.time(), trainers(folder)
    kill(folder, "worker")
    until(lambda: trainers(folder) - first, running)
    # what works for a coordinator ends once that is missed
    running.kill()
    assert running.stdout is not None
    assert "its worker died, tried again: Task failure due to loss of worker" in running.stdout.read()
    running.wait()
    until(lambda: not list(workers(folder)))
    running = start()
    said, _ = running.communicate(timeout=600)
    assert running.returncode == 0, said
    check(folder, ROWS[:1], expected, had, when, monkeypatch)


def check(
    folder: Path,
    rows: Sequence[str],
    expected: dict[str, Any],
    had: set[str],
    when: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All rows have the unbroken run's numbers, went on from checkpoints, and are signed."""
    due = {name: numbers for name, numbers in expected.items() if Path(name).stem in rows}
    assert project.numbers(folder) == due
    assert len(due) == 3 * len(rows)
    monkeypatch.chdir(folder)
    for row in had:
        run = there(records.read_run(row))
        assert run.replicas[0].started < when
    left = tasks.todo(params.load(), rows)
    assert (left.tasks, left.unsigned) == ((), ())
    assert dvclock.dvc(
        "status", *(f"{stage}@{row}" for row in rows for stage in dvclock.STAGES_OF_A_ROW)
    ).strip() == ("Data and pipelines are up to date.")
