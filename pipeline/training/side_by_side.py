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
from pipeline.training.stopping import Asked, noting_signals

# Examples' gradients in a worker's whole training below which starting the worker takes longer than it saves
WORTH = 200_000
LOOK_EVERY = 0.2  # seconds between looks at the workers


def train_replicas(wanted: Sequence[Replica], context: Context, workers: int = 1) -> list[Group]:
    """Train replicas of one model, those together that can share a step.

    Args:
        wanted: the replicas.
        context: what they are trained from and by.
        workers: processes at most, on a CPU; short trainings take fewer. No number depends on it, beyond
            rounding.

    Raises:
        Stopped: a signal asked for it. Checkpoints were written, so that the next call goes on from there.
    """
    groups = grouped(wanted)
    with noting_signals() as asked:
        processes = _worth(groups, context, workers)
        if processes > 1:
            groups = _divided(groups, processes)
            _run(groups, context, processes, asked)
        return [
            train_group(members, context, number, len(groups), asked) for number, members in enumerate(groups)
        ]


def _worth(groups: Sequence[Sequence[Replica]], context: Context, workers: int) -> int:
    """How many processes pay, by the work that there is."""
    if context.execution.device.type != "cpu":
        return 1
    examples = len(context.data.splits["train"])
    work = sum(
        replica.settings.total_steps(examples) * replica.settings.batch
        for members in groups
        for replica in members
    )
    return min(workers, sum(map(len, groups)), work // WORTH)


def _divided(groups: Sequence[Sequence[Replica]], processes: int) -> list[list[Replica]]:
    """The groups in parts of a size, so that every process has some of each."""
    parts = []
    for members in groups:
        size = math.ceil(len(members) / processes)
        parts += [list(members[start : start + size]) for start in range(0, len(members), size)]
    return parts


@dataclass(frozen=True)
class _Sent:
    """Stands for `Context.show` in a worker."""

    queue: "Queue[Progress]"

    def __call__(self, progress: Progress) -> None:
        self.queue.put(progress)


def _run(groups: list[list[Replica]], context: Context, processes: int, asked: Asked) -> None:
    """Let workers take every ``processes``-th group each, and show what they do until they end."""
    # no forks of this process: threads of OpenMP don't survive them; one that only imported torch has none
    start = multiprocessing.get_context("forkserver")
    start.set_forkserver_preload([__name__])
    queue = start.Queue()
    threads = max(1, torch.get_num_threads() // processes)
    quiet = replace(context, show=_Sent(queue))
    running: list[BaseProcess] = [
        start.Process(target=_work, args=(groups, place, processes, quiet, threads, in_use()), daemon=True)
        for place in range(processes)
    ]
    for worker in running:
        worker.start()
    told = None
    while any(worker.is_alive() for worker in running):
        with suppress(Empty):
            while True:
                context.show(queue.get(timeout=LOOK_EVERY))
        if told is None and (told := asked()) is not None:
            for worker in running:
                worker.terminate()  # each leaves a checkpoint
    if told is not None:
        raise Stopped(told, "stopped, every replica with a checkpoint; the same command goes on from there")


def _work(
    groups: list[list[Replica]],
    place: int,
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
    with noting_signals() as asked:

        def ends() -> signal.Signals | None:
            alive = parent is None or parent.is_alive()
            return asked() if alive else signal.SIGTERM

        with suppress(Stopped, UserError):
            for number in range(place, len(groups), processes):
                train_group(groups[number], context, number, len(groups), ends)
