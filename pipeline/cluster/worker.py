"""Worker: runs a task's commands in turn, in a separate process, with a log.

Parsl imports this module on every machine, so it needs few packages.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from platform import node
from threading import Event

from dprepro.pipeline.cluster.tied import tied

LOGS = Path(".dprepro/repro/logs")
LOOK_EVERY = 0.1  # seconds between checks for a request to end
BETWEEN = "/"  # separator of the commands of `stages.in_turn`
STOPPED = (128 + signal.SIGINT, 128 + signal.SIGTERM)


class CommandFailed(Exception):
    """A command ended with its own error, so another try would fail too."""


class NeedsGpu(Exception):
    """The row needs a GPU, and its worker has none."""


class Died(Exception):
    """The command was ended from outside; another try continues from its checkpoint."""


@dataclass(frozen=True)
class Task:
    """Commands that one process runs in turn."""

    name: str  # a row's key, or the name of a DVC stage such as 'relevance@NAME'
    commands: tuple[tuple[str, ...], ...]  # arguments of dprepro: ('train', 'ROW')
    stages: tuple[str, ...] = ()  # DVC stages of the results
    after: frozenset[str] = frozenset()  # names of tasks and stages whose results this task reads
    seconds: float = 0.0  # recorded or estimated duration; 0: unknown
    needs: str = "cpu"  # or 'gpu'
    named: bool = False  # requested by name, so tried on a CPU even if it needs a GPU
    here: bool = False  # only on the coordinator's machine: others may have no network

    @property
    def trains(self) -> bool:
        """Return whether the task trains a row."""
        return self.commands[0][0] == "train"

    @property
    def log(self) -> Path:
        """Path of the commands' log."""
        return LOGS / f"{self.name}.log"


@dataclass(frozen=True)
class Done:
    """Duration and machine of a finished task."""

    seconds: float
    machine: str


def work(
    task: Task,
    folder: str,
    environment: Mapping[str, str] | None = None,
    ending: Event | None = None,
    inputs: Sequence[Done] = (),
) -> Done:
    """Run a task's commands in turn; after a failed command the others don't run.

    Args:
        task: the task.
        folder: folder of params.yaml.
        environment: further environment variables of the commands; None: those of `share_of_cores`.
        ending: event that requests the end; a training then writes its checkpoint.
        inputs: results of earlier tasks; unused here, but Parsl waits for them.

    Raises:
        CommandFailed: a command failed, or ``ending`` stopped it; the message is the last line of the log.
        NeedsGpu: there is no GPU here.
        Died: the process was ended from outside.
    """
    ending, begun = ending or Event(), time.monotonic()
    if task.needs == "gpu" and not task.named:
        from dprepro.pipeline.identity.plan import gpu_here

        if not gpu_here():
            raise NeedsGpu(node())
    log = Path(folder) / task.log
    log.parent.mkdir(parents=True, exist_ok=True)
    if ending.is_set():
        raise CommandFailed("stopped")
    with log.open("a") as lines:
        print(f"{task.name}: on {node()}", file=lines, flush=True)
        process = subprocess.Popen(
            in_turn(task.commands),
            cwd=folder,
            env={**os.environ, **(share_of_cores(os.environ) if environment is None else environment)},
            stdout=lines,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            # Parsl kills the process group of a block; the trainer must write a checkpoint first
            start_new_session=True,
        )
        while process.poll() is None and not ending.wait(LOOK_EVERY):
            pass
        if process.returncode is None:
            process.terminate()
        status = process.wait()
    if (status < 0 or status in STOPPED) and not ending.is_set():
        raise Died(f"ended by signal on {node()}")
    if status:
        raise CommandFailed(last_line(log).removeprefix("dprepro: "))
    return Done(time.monotonic() - begun, node())


def in_turn(commands: Sequence[Sequence[str]]) -> list[str]:
    """Command line of a process that runs the commands by `stages.in_turn` and ends with this process."""
    line = tied(sys.executable, "-P", "-m", "dprepro.stages.in_turn")
    for number, command in enumerate(commands):
        line += [BETWEEN, *command] if number else command
    return line


def share_of_cores(given: Mapping[str, str]) -> dict[str, str]:
    """Variable OMP_NUM_THREADS of a Parsl worker: its share of the node's cores; empty if in ``given``."""
    if "OMP_NUM_THREADS" in given:
        return {}
    cores = int(given.get("SLURM_CPUS_ON_NODE", len(os.sched_getaffinity(0))))
    return {"OMP_NUM_THREADS": str(max(1, cores // int(given.get("PARSL_WORKER_COUNT", 1))))}


def last_line(log: Path) -> str:
    """Last line of a log; '' without a log."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 4096))
            lines = file.read().decode(errors="replace").split("\n")
    except OSError:
        return ""
    return next((line.strip() for line in reversed(lines) if line.strip()), "")
