"""Measuring contenders in turn, each in processes of its own.

Processes keep each other's memory and settings out of the measurement; turns let whatever else the machine
does fall on all of them alike. So ratios can be trusted where seconds can't.
"""

import resource
import statistics
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, NamedTuple

from benchmarks.ways import Contender, StepTime

TURN_SECONDS = 0.3  # seconds of one contender's turn, at least one step
LOOK_SECONDS = 1.0  # seconds of looks at what a step does
FEWEST_STEPS = 5  # steps that a median is taken of


class Measured(NamedTuple):
    """Time and memory that one contender took, or why it couldn't be measured."""

    seconds: float  # median of a step
    low: float  # quartiles
    high: float
    processor: float  # median of the processor's seconds
    steps: int
    megabytes: float  # that the process grew by, at most
    outside: float | None = None  # share of ours that is neither a forward nor a backward pass
    problem: str | None = None  # why there are no numbers


def compare(
    contenders: Sequence[Contender], threads: int, seconds: float, show: Callable[[Contender], None]
) -> list[Measured]:
    """Measure ``contenders`` in turn, for about so many ``seconds`` each; in their order."""
    teams: list[_Team] = []
    try:
        for contender in contenders:
            show(contender)
            teams.append(_Team(contender, threads))
        measurable = [team for team in teams if team.problem is None]
        started_at = time.monotonic()
        while measurable and (
            time.monotonic() - started_at < seconds * len(measurable)
            or any(len(team.times[0]) < FEWEST_STEPS for team in measurable)
        ):
            for team in measurable:
                team.turn()
        return [team.summary() for team in teams]
    finally:
        for team in teams:
            team.close()


class _Team:
    """The processes that take one contender's steps, all at once: on a CPU replicas are trained so."""

    def __init__(self, contender: Contender, threads: int):
        """Start them, with ``threads`` threads together, and wait until their steps are made."""
        context = get_context("forkserver")
        context.set_forkserver_preload(["benchmarks.ways", "opacus.grad_sample"])
        self.members: list[tuple[BaseProcess, Connection]] = []
        shares = contender.shares(threads)
        for replicas in shares:
            parent_end, child_end = context.Pipe()
            member_contender = replace(contender, replicas=replicas)
            process = context.Process(
                target=_serve, args=(child_end, member_contender, threads // len(shares)), daemon=True
            )
            process.start()
            child_end.close()
            self.members.append((process, parent_end))
        self.times: list[list[StepTime]] = [[] for _ in self.members]
        problems = [parent_end.recv() for _, parent_end in self.members]
        self.problem: str | None = next(filter(None, problems), None)

    def turn(self) -> None:
        """Let every process take steps for a while."""
        for _, parent_end in self.members:
            parent_end.send("turn")
        for (_, parent_end), times in zip(self.members, self.times, strict=True):
            times += parent_end.recv()

    def summary(self) -> Measured:
        """What they took: the first, which has the most replicas, and in processor's time and memory all."""
        if self.problem is not None:
            return Measured(0, 0, 0, 0, 0, 0, problem=self.problem)
        for _, parent_end in self.members:
            parent_end.send("end")
        epoch_shares, megabytes, outside = zip(
            *(parent_end.recv() for _, parent_end in self.members), strict=True
        )
        wall = [timing.wall for timing in self.times[0]]
        low, median, high = (value + epoch_shares[0].wall for value in statistics.quantiles(wall, n=4))
        processor_seconds = sum(
            statistics.median(timing.processor for timing in times) + epoch_share.processor
            for times, epoch_share in zip(self.times, epoch_shares, strict=True)
        )
        return Measured(median, low, high, processor_seconds, len(wall), sum(megabytes), outside[0])

    def close(self) -> None:
        """End the processes, by force where one doesn't end within ten seconds."""
        for process, parent_end in self.members:
            parent_end.close()
            process.join(10)
            process.kill()


def _serve(child_end: Connection, contender: Contender, threads: int) -> None:
    """In the contender's own process: make its step, say what is wrong with it, and take turns."""
    import torch

    from benchmarks.passes import outside
    from benchmarks.ways import OURS, ready, timed

    warnings.simplefilter("ignore")  # Opacus has many
    torch.set_num_threads(threads)
    try:
        device = torch.device(contender.device)
        memory_before = _peak(device)
        step, share = ready(contender)
        for _ in range(2):
            step()
    except Exception as problem:  # whatever a library says it can't do is a result of its own
        child_end.send(
            f"{type(problem).__name__}: {str(problem).splitlines()[0] if str(problem) else ''}"[:200]
        )
        return
    child_end.send(None)
    while child_end.recv() == "turn":
        times: list[StepTime] = []
        while sum(timing.wall for timing in times) < TURN_SECONDS:
            times.append(timed(step, device))
        child_end.send(times)
    memory_growth = _peak(device) - memory_before
    # of a GPU, which works behind the steps, the stack tells nothing
    outside_share = outside(step, LOOK_SECONDS) if contender.way == OURS and device.type == "cpu" else None
    child_end.send((share, memory_growth, outside_share))


def _peak(device: Any) -> float:
    """Megabytes that were in use at most so far."""
    import torch

    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10  # kilobytes, on Linux
