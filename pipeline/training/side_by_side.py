"""Replicas side by side: on a GPU in one step, on a CPU as many processes as it has cores.

A worker trains its replicas to the end and leaves their last checkpoint, where the calling process picks them
up. So nothing but progress travels between processes, and what was killed goes on like any other training.
"""

import math
import multiprocessing
import signal
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing.process import BaseProcess
from multiprocessing.queues import Queue
from pathlib import Path
from queue import Empty

import torch

from pipeline.errors import Stopped, UserError
from pipeline.extensions import in_use, use
from pipeline.memory import keep_freed
from pipeline.training.loop import Context, Group, Progress, Replica, grouped, train_group
from pipeline.training.stopping import StopSignal, noting_signals

# Examples' gradients in a worker's whole training below which starting the worker takes longer than it saves
WORTH = 200_000
LOOK_EVERY = 0.2  # seconds between looks at the workers


def train_replicas(replicas: Sequence[Replica], context: Context, workers: int = 1) -> list[Group]:
    """Train replicas of one model, those together that can share a step.

    Args:
        replicas: the replicas.
        context: what they are trained from and by.
        workers: processes at most, on a CPU; short trainings take fewer. No number depends on it, beyond
            rounding.

    Raises:
        Stopped: a signal asked for it. Checkpoints were written, so that the next call goes on from there.
    """
    groups = grouped(replicas)
    with noting_signals() as stop_signal:
        processes = _worthwhile_processes(groups, context, workers)
        if processes > 1:
            groups = _divide(groups, processes)
            _run(groups, context, processes, stop_signal)
        return [
            train_group(members, context, number, len(groups), stop_signal)
            for number, members in enumerate(groups)
        ]


def _worthwhile_processes(groups: Sequence[Sequence[Replica]], context: Context, workers: int) -> int:
    """How many processes pay, by the work that there is."""
    if context.execution.device.type != "cpu":
        return 1
    examples = len(context.data.splits["train"])
    examples_seen = sum(
        replica.settings.total_steps(examples) * replica.settings.batch
        for members in groups
        for replica in members
    )
    return min(workers, sum(map(len, groups)), examples_seen // WORTH)


def _divide(groups: Sequence[Sequence[Replica]], processes: int) -> list[list[Replica]]:
    """The groups in parts of a size, so that every process has some of each."""
    parts = []
    for members in groups:
        size = math.ceil(len(members) / processes)
        parts += [list(members[start : start + size]) for start in range(0, len(members), size)]
    return parts


@dataclass(frozen=True)
class _QueuedProgress:
    """Stands for `Context.show` in a worker."""

    queue: "Queue[Progress]"

    def __call__(self, progress: Progress) -> None:
        self.queue.put(progress)


def _run(groups: list[list[Replica]], context: Context, processes: int, stop_signal: StopSignal) -> None:
    """Let workers take every ``processes``-th group each, and show what they do until they end."""
    # no forks of this process: threads of OpenMP don't survive them; one that only imported torch has none
    start_context = multiprocessing.get_context("forkserver")
    start_context.set_forkserver_preload([__name__])
    queue = start_context.Queue()
    threads = max(1, torch.get_num_threads() // processes)
    worker_context = replace(context, show=_QueuedProgress(queue))
    running: list[BaseProcess] = [
        start_context.Process(
            target=_train_share,
            args=(groups, first, processes, worker_context, threads, in_use()),
            daemon=True,
        )
        for first in range(processes)
    ]
    for worker in running:
        worker.start()
    received = None
    while any(worker.is_alive() for worker in running):
        with suppress(Empty):
            while True:
                context.show(queue.get(timeout=LOOK_EVERY))
        if received is None and (received := stop_signal()) is not None:
            for worker in running:
                worker.terminate()  # each leaves a checkpoint
    if received is not None:
        raise Stopped(
            received, "stopped, every replica with a checkpoint; the same command goes on from there"
        )


def _train_share(
    groups: list[list[Replica]],
    first: int,
    processes: int,
    context: Context,
    threads: int,
    laboratory: dict[str, Path],
) -> None:
    """A worker's life. What goes wrong in it goes wrong again in the calling process, which tells of it."""
    for package, folder in laboratory.items():
        use([package], folder)
    torch.set_num_threads(threads)
    keep_freed()
    parent = multiprocessing.parent_process()
    with noting_signals() as stop_signal:

        def stop_or_orphaned() -> signal.Signals | None:
            alive = parent is None or parent.is_alive()
            return stop_signal() if alive else signal.SIGTERM

        with suppress(Stopped, UserError):
            for number in range(first, len(groups), processes):
                train_group(groups[number], context, number, len(groups), stop_or_orphaned)
