"""Replicas side by side: on a GPU in one step, on a CPU as many processes as it has cores.

A worker trains its replicas to the end and leaves their last checkpoint, where the calling process picks them
up. So nothing but progress travels between processes, and what was killed goes on like any other training.
"""

import multiprocessing
import signal
from collections.abc import Generator, Iterator, Sequence
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
from pipeline.training.loop import Context, Group, Progress, Replica, grouped_for, train_group
from pipeline.training.stopping import StopSignal, noting_signals

# Examples' gradients in a worker's whole training below which starting the worker takes longer than it saves
WORTH = 200_000
LOOK_EVERY = 0.2  # seconds between looks at the workers


def train_replicas(
    replicas: Sequence[Replica], context: Context, workers: int = 1
) -> Generator[Group, None, None]:
    """Train replicas of one model, and yield each group of them when its last step is done.

    As many as the device takes at once share their steps; a seed of every level comes before the next seed.

    Args:
        replicas: the replicas.
        context: what they are trained from and by.
        workers: processes at most, on a CPU; short trainings take fewer. No number depends on it, beyond
            rounding.

    Raises:
        Stopped: a signal asked for it. Checkpoints were written, so that the next call goes on from there.
    """
    groups = grouped_for(replicas, context.model, context.data, context.execution)
    groups.sort(key=lambda members: members[0].seed)
    with noting_signals() as stop_signal:
        processes = _worthwhile_processes(groups, context, workers)
        done = _run(groups, context, processes, stop_signal) if processes > 1 else range(len(groups))
        for number in done:
            yield train_group(groups[number], context, number, len(groups), stop_signal)


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
    return min(workers, len(groups), examples_seen // WORTH)


Told = Progress | int  # by a worker: where it stands, or the number of a group that it has trained


@dataclass(frozen=True)
class _QueuedProgress:
    """Stands for `Context.show` in a worker."""

    queue: "Queue[Told]"

    def __call__(self, progress: Progress) -> None:
        self.queue.put(progress)


def _run(
    groups: list[list[Replica]], context: Context, processes: int, stop_signal: StopSignal
) -> Iterator[int]:
    """Let workers take every ``processes``-th group each, show what they do, and yield what is trained.

    What no worker could train comes last.
    """
    # no forks of this process: threads of OpenMP don't survive them; one that only imported torch has none
    start_context = multiprocessing.get_context("forkserver")
    start_context.set_forkserver_preload([__name__])
    queue: Queue[Told] = start_context.Queue()
    threads = max(1, torch.get_num_threads() // processes)
    worker_context = replace(context, show=_QueuedProgress(queue))
    running: list[BaseProcess] = [
        start_context.Process(
            target=_train_share,
            args=(groups, first, processes, worker_context, threads, in_use(), queue),
            daemon=True,
        )
        for first in range(processes)
    ]
    for worker in running:
        worker.start()
    left = dict.fromkeys(range(len(groups)))
    try:
        while any(worker.is_alive() for worker in running) and stop_signal() is None:
            with suppress(Empty):
                told = queue.get(timeout=LOOK_EVERY)
                if isinstance(told, Progress):
                    context.show(told)
                else:
                    del left[told]
                    yield told
    finally:
        for worker in running:
            worker.terminate()  # each leaves a checkpoint
        while any(worker.is_alive() for worker in running):
            with suppress(Empty):  # a worker ends when what it tells is taken
                queue.get(timeout=LOOK_EVERY)
    if (received := stop_signal()) is not None:
        raise Stopped(received, "stopped, what ran has a checkpoint; the same command goes on from there")
    yield from left


def _train_share(
    groups: list[list[Replica]],
    first: int,
    processes: int,
    context: Context,
    threads: int,
    laboratory: dict[str, Path],
    queue: "Queue[Told]",
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
                queue.put(number)
