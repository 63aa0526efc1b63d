"""Measuring contenders in turn, each in a process of its own.

Processes keep each other's memory and settings out of the measurement; turns let whatever else the machine
does fall on all of them alike. So ratios can be trusted where seconds can't.
"""

import resource
import statistics
import time
import warnings
from collections.abc import Callable, Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from pipeline.benchmarks.ways import Contender, Took

TURN = 0.3  # seconds of one contender's turn, at least one step
LOOKED = 1.0  # seconds of looks at what a step does
LEAST = 5  # steps that a median is taken of


class Measured(NamedTuple):
    """What one contender took."""

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
    context = get_context("forkserver")
    context.set_forkserver_preload(["pipeline.benchmarks.ways", "opacus.grad_sample"])
    workers = []
    try:
        for contender in contenders:
            here, there = context.Pipe()
            process = context.Process(target=_serve, args=(there, contender, threads), daemon=True)
            process.start()
            there.close()
            show(contender)
            workers.append((process, here, here.recv()))
        able: list[tuple[Connection, list[Took]]]
        able = [(here, []) for _, here, problem in workers if problem is None]
        begun = time.monotonic()
        while able and (
            time.monotonic() - begun < seconds * len(able) or any(len(times) < LEAST for _, times in able)
        ):
            for here, times in able:
                here.send("turn")
                times += here.recv()
        found = iter(able)
        return [
            Measured(0, 0, 0, 0, 0, 0, problem=problem) if problem is not None else _summary(*next(found))
            for _, _, problem in workers
        ]
    finally:
        for process, here, _ in workers:
            here.close()
            process.join(10)
            process.kill()


def _summary(here: Connection, times: list[Took]) -> Measured:
    here.send("end")
    share, megabytes, outside = here.recv()
    wall, processor = zip(*times, strict=True)
    low, median, high = (value + share.wall for value in statistics.quantiles(wall, n=4))
    spent = statistics.median(processor) + share.processor
    return Measured(median, low, high, spent, len(times), megabytes, outside)


def _serve(there: Connection, contender: Contender, threads: int) -> None:
    """In the contender's own process: make its step, say what is wrong with it, and take turns."""
    import torch

    from pipeline.benchmarks.passes import outside
    from pipeline.benchmarks.ways import OURS, ready, timed

    warnings.simplefilter("ignore")  # Opacus has many
    torch.set_num_threads(threads)
    try:
        device = torch.device(contender.device)
        before = _peak(device)
        step, share = ready(contender)
        for _ in range(2):
            step()
    except Exception as problem:  # whatever a library says it can't do is a result of its own
        there.send(f"{type(problem).__name__}: {str(problem).splitlines()[0] if str(problem) else ''}"[:200])
        return
    there.send(None)
    while there.recv() == "turn":
        times: list[Took] = []
        while sum(took.wall for took in times) < TURN:
            times.append(timed(step, device))
        there.send(times)
    grown = _peak(device) - before
    # of a GPU, which works behind the steps, the stack tells nothing
    looked = outside(step, LOOKED) if contender.way == OURS and device.type == "cpu" else None
    there.send((share, grown, looked))


def _peak(device: Any) -> float:
    """Megabytes that were in use at most so far."""
    import torch

    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10  # kilobytes, on Linux
