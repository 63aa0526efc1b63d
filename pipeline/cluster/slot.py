"""What runs on a slot: a task's commands in turn, in a process of their own, with its lines in a log.

Imported on every machine that works, so it needs little.
"""

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from platform import node

from filelock import FileLock, Timeout

PR_SET_PDEATHSIG = 1  # of sys/prctl.h
LOOK_EVERY = 0.5  # seconds between looks at a row that somebody else trains
BETWEEN = "/"  # stands between the commands of `stages.in_turn`
STOPPED = (128 + signal.SIGINT, 128 + signal.SIGTERM)
_running: set[subprocess.Popen[bytes]] = set()


@dataclass(frozen=True)
class Job:
    """A task as it travels to a slot."""

    commands: tuple[tuple[str, ...], ...]  # arguments of dprepro
    folder: str  # of params.yaml
    log: str  # file
    lock: str | None = None  # file that whoever trains this row holds
    threads: int | None = None  # None: this slot's share of the cores that were given to it
    modules: str | None = None  # folder whose modules come before those of this Python


@dataclass(frozen=True)
class Ended:
    """How a job ended."""

    status: int  # of the last command that ran; negative where a signal ended it
    seconds: float
    where: str  # the machine's name

    @property
    def died(self) -> bool:
        """Whether somebody ended it from outside, so that it is worth trying elsewhere."""
        return self.status < 0 or self.status in STOPPED


def work(job: Job) -> Ended:
    """Run a job's commands until one fails."""
    begun = time.monotonic()
    log = Path(job.log)
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a") as lines:
        if job.lock is not None:
            wait_for(Path(job.folder) / job.lock, lambda line: print(line, file=lines, flush=True))
        process = subprocess.Popen(
            in_turn(job.commands),
            cwd=job.folder,
            env={**os.environ, **environment(job.threads), **first_on_the_path(job.modules)},
            stdout=lines,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            # whoever ends a block kills its group; a trainer shall leave a checkpoint first
            start_new_session=True,
            preexec_fn=dies_with(os.getpid()),
        )
        _running.add(process)
        status = process.wait()
        _running.discard(process)
    return Ended(status, time.monotonic() - begun, node())


def end_all() -> None:
    """Ask what this process has started to end."""
    for process in _running:
        process.terminate()


def gpu_here() -> bool:
    """Whether a slot has a GPU."""
    from pipeline.identity.plan import gpu_here

    return gpu_here()


def in_turn(commands: Sequence[Sequence[str]]) -> list[str]:
    """The process that runs them: `stages.in_turn`."""
    # not `-m` alone, which would take modules from the current folder first
    line = [sys.executable, "-P", "-m", "stages.in_turn"]
    for number, command in enumerate(commands):
        line += [BETWEEN, *command] if number else command
    return line


def environment(threads: int | None, around: Mapping[str, str] = os.environ) -> dict[str, str]:
    """What a slot's commands are told of it: how many threads are its share, where nobody said it before."""
    if "OMP_NUM_THREADS" in around:
        return {}
    slots = max(1, int(around.get("PARSL_WORKER_COUNT", 1)))
    given = around.get("SLURM_CPUS_ON_NODE") or str(len(os.sched_getaffinity(0)))
    return {"OMP_NUM_THREADS": str(threads or max(1, int(given) // slots))}


def first_on_the_path(modules: str | Path | None) -> dict[str, str]:
    """The variable by which a command takes its modules from a folder where that has them."""
    others = os.environ.get("PYTHONPATH")
    return {} if modules is None else {"PYTHONPATH": os.pathsep.join(filter(None, (str(modules), others)))}


def dies_with(parent: int) -> Callable[[], None]:
    """What a child does first, so that it is asked to end (TERM) when its parent is gone, as after `kill -9`.

    Where the system has no such thing it goes on, and whoever is given the same row waits for it.
    """

    def tie() -> None:
        try:
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        except (OSError, AttributeError):
            return
        if os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGTERM)

    return tie


def wait_for(path: Path, say: Callable[[str], None]) -> None:
    """Wait until nobody trains the row: one whose worker was killed does until its checkpoint is written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lock, told = FileLock(path), False
    while True:
        try:
            with lock.acquire(timeout=0):
                return
        except Timeout:
            if not told:
                say(f"{path}: somebody else trains this row; waiting")
            told = True
            time.sleep(LOOK_EVERY)
