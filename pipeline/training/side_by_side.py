"""Trainings side by side, in several processes of one device.

A worker does its trainings to the end and leaves their last checkpoint, which the calling process loads. So
processes exchange only progress, and a killed training continues like any other.
"""

import multiprocessing
import signal
from collections.abc import Generator, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path

import torch

from dprepro.errors import Stopped, StopSignal, Unproven, UserError, recording_signals
from dprepro.pipeline.extensions import in_use, use
from dprepro.pipeline.methods.base import keep_freed
from dprepro.pipeline.training.loop import Context, FinishedTraining, Progress, SeedRun, train_run

# smallest number of per-example gradients for which a worker on a CPU saves more time than its start takes
WORTH = 200_000
LOOK_EVERY = 0.2  # seconds between checks of the workers


def train_runs(
    runs: Sequence[SeedRun], context: Context, workers: int = 1
) -> Generator[FinishedTraining, None, None]:
    """Do trainings of one model, and yield each after its last step.

    One seed of every level is trained before the next seed. ``workers``: largest number of processes; short
    trainings on a CPU take fewer. Results don't depend on it, except for rounding.

    Raises:
        Stopped: a signal stopped the training. Checkpoints were written, from which the next call continues.
        Unproven: something breaks the guarantee of a training.
    """
    runs = sorted(runs, key=lambda run: run.seed)
    with recording_signals() as stop_signal:
        processes = _worthwhile_processes(runs, context, workers)
        done = _run(runs, context, processes, stop_signal) if processes > 1 else range(len(runs))
        for number in done:
            yield train_run(runs[number], context, number, len(runs), stop_signal)


def _worthwhile_processes(runs: Sequence[SeedRun], context: Context, workers: int) -> int:
    """Number of processes for which the work is long enough to save time."""
    if context.execution.device.type != "cpu":
        return min(workers, len(runs))
    examples = len(context.data.splits["train"])
    examples_seen = sum(run.settings.total_steps(examples) * run.settings.batch for run in runs)
    return min(workers, len(runs), examples_seen // WORTH)


# From a worker: progress; number of a finished training; or text and number of trainings of `Unproven`,
# which might not occur again in the calling process, because its samples are new
Message = Progress | int | tuple[str, int]


def _send(pipe: Connection, progress: Progress) -> None:
    """Send a worker's progress to the calling process; it is the worker's `Context.show`."""
    with suppress(BrokenPipeError):  # a worker whose calling process has died stops by itself
        pipe.send(progress)


def _run(runs: Sequence[SeedRun], context: Context, processes: int, stop_signal: StopSignal) -> Iterator[int]:
    """Start workers that take every ``processes``-th run, show their progress, and yield finished trainings.

    Those that no worker could do come last.
    """
    # forks of a server that only imported torch, because threads of OpenMP in this process don't survive a
    # fork
    start_context = multiprocessing.get_context("forkserver")
    start_context.set_forkserver_preload([__name__])
    threads = max(1, torch.get_num_threads() // processes)
    running: list[BaseProcess] = []
    # a pipe for each worker: a queue's lock would stay locked if a worker ended while it has the lock
    pipes: list[Connection] = []
    for first in range(processes):
        pipe, workers_end = start_context.Pipe(duplex=False)
        worker_context = replace(context, show=partial(_send, workers_end))
        worker = start_context.Process(
            target=_train_share,
            args=(runs, first, processes, worker_context, threads, in_use(), workers_end),
            daemon=True,
        )
        running.append(worker)
        worker.start()
        workers_end.close()  # then the worker has the only copy, and its end is the end of the pipe
        pipes.append(pipe)
    left = dict.fromkeys(range(len(runs)))
    stopped: list[tuple[str, int]] = []
    try:
        for message in _messages(pipes, stop_signal):
            if isinstance(message, Progress):
                context.show(message)
            elif isinstance(message, int):
                del left[message]
                yield message
            else:
                stopped.append(message)
                break
    finally:
        for process in running:
            process.terminate()  # each leaves a checkpoint
        # a worker ends when its messages are read
        stopped += [message for message in _messages(pipes) if isinstance(message, tuple)]
    if stopped:
        raise Unproven(stopped[0][0], sum(trainings for _, trainings in stopped))
    if (received := stop_signal()) is not None:
        raise Stopped(received, "stopped, what ran has a checkpoint; the same command goes on from there")
    yield from left


def _messages(pipes: list[Connection], stop_signal: StopSignal = lambda: None) -> Iterator[Message]:
    """All messages of workers until the workers have ended, or until there is a signal.

    The pipes of workers that have ended are removed from ``pipes``.
    """
    while pipes and stop_signal() is None:
        ready = wait(pipes, LOOK_EVERY)
        for pipe in [each for each in pipes if each in ready]:
            try:
                message: Message = pipe.recv()
            except (EOFError, OSError):  # OSError: killed in the midst of a message
                pipes.remove(pipe)
            else:
                yield message


def _train_share(
    runs: Sequence[SeedRun],
    first: int,
    processes: int,
    context: Context,
    threads: int,
    laboratory: dict[str, Path],
    pipe: Connection,
) -> None:
    """Do every ``processes``-th training from ``first`` on, in a worker.

    Other errors than `Unproven` occur again in the calling process, which reports them.
    """
    for package, folder in laboratory.items():
        use([package], folder)
    torch.set_num_threads(threads)
    torch.seed()  # workers inherit the server's generator, and would draw the same numbers for dropout
    keep_freed()
    parent = multiprocessing.parent_process()
    with recording_signals() as stop_signal:

        def stop_or_orphaned() -> signal.Signals | None:
            alive = parent is None or parent.is_alive()
            return stop_signal() if alive else signal.SIGTERM

        with suppress(Stopped, UserError, BrokenPipeError):
            for number in range(first, len(runs), processes):
                try:
                    train_run(runs[number], context, number, len(runs), stop_or_orphaned)
                except Unproven as problem:
                    pipe.send((str(problem), problem.trainings))
                    raise
                pipe.send(number)
