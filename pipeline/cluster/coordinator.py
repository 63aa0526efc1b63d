"""Coordinator: submits tasks to Parsl, signs results (adds them to dvc.lock), and reports on each task."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, wait
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from parsl.dataflow.errors import DependencyError
from parsl.dataflow.futures import AppFuture
from parsl.executors.errors import ExecutorError

from dprepro.errors import Stopped, UserError, printable, shown
from dprepro.pipeline.cluster.executors import STATE, Slots
from dprepro.pipeline.cluster.tasks import Todo, longest_path_first
from dprepro.pipeline.cluster.worker import CommandFailed, Done, NeedsGpu, Task, last_line
from dprepro.pipeline.files import locked
from dprepro.pipeline.params import Settings
from dprepro.pipeline.training.checkpoints import CHECKPOINTS
from dprepro.pipeline.training.stopping import recording_signals
from dprepro.pipeline.transport import dvclock

# Further tries of a row whose worker died; a try that left a newer checkpoint doesn't count
RETRIES = 2
SIGN_EVERY = 60.0  # seconds between signatures; DVC takes a few seconds for any number of stages
LOOK_EVERY = 1.0  # seconds between looks at the logs


@dataclass
class Summary:
    """Outcome of every task, by name."""

    done: dict[str, Done] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)  # reasons
    waits_for_gpu: list[str] = field(default_factory=list)


def run(settings: Settings, work: Todo, slots: Slots, show: Callable[[list[str]], None]) -> Summary:
    """Run all tasks, enter their results into dvc.lock, and print a line per task.

    If a task fails, the tasks that need it don't run. ``show`` is called with lines about the running tasks,
    about once a second.

    Raises:
        UserError: another coordinator works here, or no slot works.
        Stopped: a signal arrived; running tasks leave a checkpoint.
    """
    busy = "another `dprepro repro` works here; wait for it or stop it"
    with locked(STATE / "lock", busy), recording_signals() as asked:
        grid = _Grid(settings, work)
        try:
            with slots.started(_cost_of_a_try, RETRIES) as submit:
                for task in grid.waiting.values():
                    after = [grid.futures[name] for name in task.after if name in grid.futures]
                    grid.futures[task.name] = submit(task, after)
                while grid.waiting:
                    grid.collect()
                    show(list(grid.lines()))
                    if (signal := asked()) is not None:
                        how = "stopped, what ran has a checkpoint; the same command goes on from there"
                        raise Stopped(signal, how)
        finally:
            grid.sign()
    if grid.unsigned:
        grid.summary.failed["dvc.lock"] = "not signed; the same command tries again"
    return grid.summary


def _cost_of_a_try(problem: Exception, record: dict[str, Any]) -> float:
    """Cost of a failed try for Parsl's retries: 0 if it left a newer checkpoint, 1 if not.

    If another try would fail too, the cost is more than `RETRIES`.
    """
    if isinstance(problem, (CommandFailed, NeedsGpu, ExecutorError, DependencyError)):
        return RETRIES + 1  # another try would fail too
    task: Task = record["args"][0]
    checkpoints = (CHECKPOINTS / task.name).rglob("*.pt")
    cost = int(max(map(_modified, checkpoints), default=0.0) < record["try_time_launched"].timestamp())
    if record["fail_cost"] + cost <= RETRIES:
        print(f"{task.name}: its worker died, tried again: {problem}", flush=True)
    return cost


class _Grid:
    """Submitted tasks, and the results of those that ended."""

    def __init__(self, settings: Settings, work: Todo):
        self.settings, self.summary = settings, Summary()
        self.waiting = {task.name: task for task in longest_path_first(work.tasks)}
        self.futures: dict[str, AppFuture] = {}
        self.unsigned = [stage for row in work.unsigned for stage in dvclock.stages_of(row)]
        self._since: dict[str, float] = {}  # time at which a task was first seen running
        self._begun, self._signed, self._count = time.time(), time.monotonic(), len(work.tasks)

    def collect(self) -> None:
        """Wait up to a second for tasks that end, and sign results every `SIGN_EVERY` seconds."""
        wait([self.futures[name] for name in self.waiting], LOOK_EVERY, FIRST_COMPLETED)
        for task in [task for task in self.waiting.values() if self.futures[task.name].done()]:
            del self.waiting[task.name]
            became = self._became(task, self.futures[task.name].exception())
            print(f"{task.name}: {printable(became)} ({len(self.waiting)} left)", flush=True)
        if time.monotonic() - self._signed >= SIGN_EVERY:
            self.sign()

    def _became(self, task: Task, problem: BaseException | None) -> str:
        if problem is None:
            done = self.summary.done[task.name] = self.futures[task.name].result()
            self.unsigned += task.stages
            return f"done, {timedelta(seconds=round(done.seconds))} on {done.machine}"
        cause = problem.__cause__ if isinstance(problem, DependencyError) else problem
        if isinstance(cause, NeedsGpu):
            self.summary.waits_for_gpu.append(task.name)
            return "waits for a GPU"
        if isinstance(cause, ExecutorError):
            raise UserError(f"{cause.executor.label}: no slot works: {shown(cause.reason)}")
        if isinstance(problem, DependencyError):
            why = f"needs {min(task.after & self.summary.failed.keys())}"
        elif isinstance(problem, CommandFailed):
            why = f"{problem} ({task.log})"
        else:
            why = f"its worker died {RETRIES + 1} times with nothing done between: {problem} ({task.log})"
        self.summary.failed[task.name] = why
        return f"failed, {why}"

    def lines(self) -> Iterator[str]:
        """Running tasks with their duration and the last line of their log."""
        for name, task in self.waiting.items():
            if _modified(task.log) >= self._begun:
                spent = time.monotonic() - self._since.setdefault(name, time.monotonic())
                line = printable(last_line(task.log)).removeprefix(f"{name}: ")
                yield f"{name} {timedelta(seconds=int(spent))} {line}"
        yield f"{self._count - len(self.waiting)} of {self._count} done"

    def sign(self) -> None:
        """Have DVC add finished results to dvc.lock, many at once; after a refusal, the next call retries."""
        try:
            if self.unsigned and (signed := dvclock.sign(self.settings, self.unsigned)):
                names = dict.fromkeys(stage.partition("@")[2] for stage in self.unsigned if stage in signed)
                print(f"signed: {', '.join(names)}", flush=True)
            self.unsigned = []
        except UserError as problem:  # usually another DVC process
            print(f"not signed yet: {problem}", flush=True)
        self._signed = time.monotonic()


def _modified(path: Path) -> float:
    """Time of a file's last change, in Unix time; 0 without the file."""
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
