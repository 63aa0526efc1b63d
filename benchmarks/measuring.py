"""Measurement of contenders in turns, each in a separate process.

Separate processes share no memory and no settings. Turns spread the machine's other load evenly over the
contenders, so ratios are reliable even if seconds are not.
"""

import os
import resource
import statistics
import time
import warnings
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from multiprocessing import get_context
from typing import NamedTuple

import torch

from benchmarks.steps import Contender, Step

TURN_SECONDS = 0.3  # seconds of one contender's turn, which has at least one step
FEWEST_STEPS = 5  # least number of steps for a median


class Measured(NamedTuple):
    """Time and memory of a contender's step."""

    wall: float  # median seconds
    processor: float  # median processor seconds of all threads, comparable even on a busy machine
    megabytes: float  # largest growth of the process


def compare(
    contenders: Sequence[Contender], threads: int, seconds: float, pinned: bool
) -> list[Measured | Exception]:
    """Measure each contender for about ``seconds`` seconds; results are in the contenders' order.

    The result of a contender that can't train its case is the exception. ``pinned`` limits a contender,
    including its thread that draws noise ahead, to ``threads`` cores.
    """
    with ExitStack() as stack:
        pools = [stack.enter_context(ProcessPoolExecutor(1, get_context("forkserver"))) for _ in contenders]
        # exceptions of libraries that can't train the case
        problems = [
            pool.submit(_begin, contender, threads, pinned).exception()
            for pool, contender in zip(pools, contenders, strict=True)
        ]
        measurable = [pool for pool, problem in zip(pools, problems, strict=True) if problem is None]
        times: list[list[tuple[float, float]]] = [[] for _ in measurable]
        until = time.monotonic() + seconds * len(measurable)
        while measurable and (time.monotonic() < until or any(len(taken) < FEWEST_STEPS for taken in times)):
            for pool, taken in zip(measurable, times, strict=True):
                taken += pool.submit(_turn).result()
        measured: list[Measured] = []
        for pool, taken in zip(measurable, times, strict=True):
            wall, processor = map(statistics.median, zip(*taken, strict=True))
            measured.append(Measured(wall, processor, pool.submit(_grown).result()))
        found = iter(measured)
        return [next(found) if problem is None else Exception(problem) for problem in problems]


_own: dict[str, tuple[Step, torch.device, float]] = {}  # in a contender's own process


def _begin(contender: Contender, threads: int, pinned: bool) -> None:
    warnings.simplefilter("ignore")  # Opacus warns often
    if pinned:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    torch.set_num_threads(threads)
    device = torch.device(contender.device)
    before = _peak(device)
    step = contender.step()
    for _ in range(2):
        step()
    _own["step"] = step, device, before


def _turn() -> list[tuple[float, float]]:
    """Wall and processor seconds of each completed step."""
    step, device, _ = _own["step"]
    times: list[tuple[float, float]] = []
    while sum(wall for wall, _ in times) < TURN_SECONDS:
        begun, processor = time.perf_counter(), time.process_time()
        step()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        times.append((time.perf_counter() - begun, time.process_time() - processor))
    return times


def _grown() -> float:
    _, device, before = _own["step"]
    return _peak(device) - before


def _peak(device: torch.device) -> float:
    """Largest memory use so far, in megabytes."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10  # kilobytes, on Linux
