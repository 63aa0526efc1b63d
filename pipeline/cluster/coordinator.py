"""Coordinator: runs tasks at once, adds their results to dvc.lock, and prints a line per task."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from queue import SimpleQueue
from threading import Event

from dprepro.errors import Stopped, UserError, printable, recording_signals
from dprepro.pipeline.cluster.tasks import RowWork
from dprepro.pipeline.files import locked
from dprepro.pipeline.identity.plan import gpu_here
from dprepro.pipeline.params import Settings
from dprepro.pipeline.results.records import CHECKPOINTS
from dprepro.pipeline.transport import dvclock

LOCK = Path(".dprepro/repro/lock")
SIGN_EVERY = 60.0  # seconds between signatures; DVC takes a few seconds for any number of stages
LOOK_EVERY = 0.1  # seconds between looks for a signal, or for the end of a process
STARTED, ENDED = "started on", "ended with status"  # first and last line of `stages.run_commands` begin so
RETRIES = 2  # further tries of a task that died; one that left a newer checkpoint doesn't count


def run(
    settings: Settings, tasks: Sequence[RowWork], words: Sequence[str], jobs: int
) -> tuple[dict[str, float], dict[str, str]]:
    """Run ``tasks``, ``jobs`` at once and the longest first, and enter the results into dvc.lock.

    ``words`` stand before a task's command line: those of a launcher; none on this machine. Return the
    seconds of each task that is done, and the reasons of those that failed.

    Raises:
        UserError: another coordinator works here, or DVC doesn't take the results.
        Stopped: a signal arrived; running tasks leave a checkpoint.
    """
    done, failed = dict[str, float](), dict[str, str]()
    free, ending, unsigned = SimpleQueue[dict[str, str]](), Event(), list[str]()
    for environment in [{}] * jobs if words else environments(jobs):
        free.put(environment)

    def work_on_a_slot(task: RowWork) -> float:
        environment = free.get()
        try:
            return work(task, words, environment, ending)
        finally:
            free.put(environment)

    def sign() -> None:
        dvclock.sign(settings, unsigned)
        unsigned.clear()

    busy = "another `dprepro repro` works here; wait for it or stop it"
    with locked(LOCK, busy), recording_signals() as asked, ThreadPoolExecutor(jobs) as pool:
        ordered = sorted(tasks, key=lambda task: -task.seconds)  # a long row that starts last delays the end
        running, signed = {pool.submit(work_on_a_slot, task): task for task in ordered}, time.monotonic()
        try:
            while running and not asked():
                ended = wait(running, LOOK_EVERY, FIRST_COMPLETED).done
                for future in [each for each in running if each in ended]:  # a set has no order
                    task = running.pop(future)
                    if (problem := future.exception()) is not None:
                        became = failed[task.name] = f"failed, {problem} ({task.log})"
                    else:
                        seconds = done[task.name] = future.result()
                        became = f"done, {timedelta(seconds=round(seconds))}"
                        unsigned += dvclock.stages_of(task.name)
                    print(f"{task.name}: {printable(became)} ({len(running)} left)", flush=True)
                if time.monotonic() - signed >= SIGN_EVERY:
                    signed = time.monotonic()
                    with suppress(UserError):  # usually another DVC process; tried again
                        sign()
        finally:
            ending.set()
            pool.shutdown(cancel_futures=True)
            sign()
        if (signal := asked()) is not None:
            raise Stopped(signal, "stopped, what ran has a checkpoint; the same command goes on from there")
    return done, failed


def environments(jobs: int) -> list[dict[str, str]]:
    """Variables of each of ``jobs`` processes on this machine: its share of the cores, and one GPU."""
    threads = os.environ.get("OMP_NUM_THREADS", str(max(1, len(os.sched_getaffinity(0)) // jobs)))
    gpus = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    if gpus == [""] and gpu_here():
        import torch

        gpus = [str(number) for number in range(torch.cuda.device_count())]
    devices = [{"CUDA_VISIBLE_DEVICES": gpus[slot % len(gpus)]} for slot in range(jobs)]
    return [{"OMP_NUM_THREADS": threads, **(device if gpus != [""] else {})} for device in devices]


def work(task: RowWork, words: Sequence[str], environment: Mapping[str, str], ending: Event) -> float:
    """Run a task's commands in one process until they are done, and return the seconds.

    ``words`` stand before the command line, ``environment`` adds to that of this process. After ``ending``, a
    training writes its checkpoint and ends.

    Raises:
        UserError: a command failed, or the process was ended from outside `RETRIES` + 1 times without a newer
            checkpoint between.
    """
    begun, tries = time.monotonic(), 0
    while not ending.is_set():
        launched = time.time()
        status, lines = _run(task, words, environment, ending)
        if status == 0:
            return time.monotonic() - begun
        own = [number for number, line in enumerate(lines) if line.startswith(ENDED)]
        if own and status < 128:  # a command's own error: another try would fail too
            raise UserError(lines[own[0] - 1].removeprefix("dprepro: "))
        why = f"died with status {status} after: {printable(lines[-1] if lines else 'nothing')}"
        checkpoints = (path.stat().st_mtime for path in (CHECKPOINTS / task.name).rglob("*.pt"))
        tries += max(checkpoints, default=0.0) < launched
        if tries > RETRIES:
            raise UserError(f"{why}; {tries} times with nothing done between")
        print(f"{task.name}: {why}", flush=True)
    raise UserError("stopped")


def _run(
    task: RowWork, words: Sequence[str], environment: Mapping[str, str], ending: Event
) -> tuple[int, list[str]]:
    """Run a task's process once; return its status and the lines that it wrote."""
    task.log.parent.mkdir(parents=True, exist_ok=True)
    with task.log.open("ab") as log:
        start = log.tell()
        process = subprocess.Popen(
            [*words, sys.executable, "-P", "-m", "dprepro.stages.run_commands", json.dumps(task.commands)],
            env={**os.environ, **environment},
            stdin=subprocess.PIPE,  # `stages.run_commands` ends with this pipe, however this process ends
            stdout=log,
            stderr=subprocess.STDOUT,
            process_group=0,  # Ctrl-C reaches the coordinator alone
        )

    def lines() -> list[str]:
        text = task.log.read_bytes()[start:].decode(errors="replace")
        return [line.strip() for line in text.split("\n") if line.strip()]

    assert process.stdin is not None
    while process.poll() is None and not ending.wait(LOOK_EVERY):
        pass
    process.stdin.close()
    if process.poll() is None and not any(line.startswith(STARTED) for line in lines()):
        process.terminate()  # a launcher that still waits for a machine
    return process.wait(), lines()
