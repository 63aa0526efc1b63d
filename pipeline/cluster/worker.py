"""What runs a task: its commands in turn, in a process of their own, with their lines in a log.

Parsl's workers import it on every machine, so it needs little.
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

from pipeline.cluster.tied import tied

LOGS = Path(".dprepro/repro/logs")
LOOK_EVERY = 0.1  # seconds between looks whether it is asked to end
BETWEEN = "/"  # stands between the commands of `stages.in_turn`
STOPPED = (128 + signal.SIGINT, 128 + signal.SIGTERM)


class CommandFailed(Exception):
    """A command ended by an error of its own, so that trying again would change nothing."""


class NeedsGpu(Exception):
    """The row waits for a GPU, and there is none where it was sent."""


class Died(Exception):
    """The command was ended from outside: another try goes on from its checkpoint."""


@dataclass(frozen=True)
class Task:
    """Commands that one process runs in turn."""

    name: str  # a row's key, or 'relevance@NAME' and the like, as DVC calls the stage
    commands: tuple[tuple[str, ...], ...]  # arguments of dprepro: ('train', 'ROW')
    stages: tuple[str, ...] = ()  # of DVC, which the results are signed as
    after: frozenset[str] = frozenset()  # names of tasks whose results it reads; those of no task are there
    seconds: float = 0.0  # that it took before, or is reckoned to take; 0: nobody knows
    needs: str = "cpu"  # or 'gpu'
    named: bool = False  # asked for by name: tried on a CPU whatever it needs
    here: bool = False  # only on the coordinator's machine: others may have no network

    @property
    def trains(self) -> bool:
        """Whether it trains a row."""
        return self.commands[0][0] == "train"

    @property
    def log(self) -> Path:
        """The file that its commands' lines go to."""
        return LOGS / f"{self.name}.log"


@dataclass(frozen=True)
class Done:
    """How long a task took, and on which machine."""

    seconds: float
    machine: str


def work(
    task: Task,
    folder: str,
    environment: Mapping[str, str] | None = None,
    ending: Event | None = None,
    inputs: Sequence[Done] = (),
) -> Done:
    """Run a task's commands until one fails.

    Args:
        task: what to do.
        folder: of params.yaml.
        environment: variables of its process; None: this worker's share of the cores.
        ending: once it is set, the process is asked to end, and writes its checkpoint.
        inputs: of the tasks that came before; Parsl waits for them.

    Raises:
        CommandFailed: a command did; its last line says why.
        NeedsGpu: there is none here.
        Died: the process was ended from outside.
    """
    ending, begun = ending or Event(), time.monotonic()
    if task.needs == "gpu" and not task.named and not _gpu_here():
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
            # whoever ends a block kills its group; a trainer shall leave a checkpoint first
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
    """Command line of a process that runs the commands and ends with this process: `stages.in_turn`."""
    line = tied(sys.executable, "-P", "-m", "stages.in_turn")
    for number, command in enumerate(commands):
        line += [BETWEEN, *command] if number else command
    return line


def share_of_cores(given: Mapping[str, str]) -> dict[str, str]:
    """How many threads are a Parsl worker's, of what its node was ``given``, where nobody said it before."""
    if "OMP_NUM_THREADS" in given:
        return {}
    cores = int(given.get("SLURM_CPUS_ON_NODE", len(os.sched_getaffinity(0))))
    return {"OMP_NUM_THREADS": str(max(1, cores // int(given.get("PARSL_WORKER_COUNT", 1))))}


def last_line(log: Path) -> str:
    """The last line of a log; nothing where there is none yet."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 4096))
            lines = file.read().decode(errors="replace").split("\n")
    except OSError:
        return ""
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def _gpu_here() -> bool:
    from pipeline.identity.plan import gpu_here

    return gpu_here()
