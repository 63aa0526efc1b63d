"""`python -m benchmarks`: cost of a private training step, compared with SGD and Opacus."""

import os
import platform
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from benchmarks.measuring import Measured, compare
from benchmarks.steps import CASES, PLAIN, WAYS, Contender
from dprepro.pipeline.files import write_text
from dprepro.pipeline.identity import provenance

TABLE = Path("reports/benchmarks/steps.md")
HEAD = (
    "step",
    "batch",
    "threads",
    "way",
    "ms",
    "of plain SGD",
    "processor, ms",
    "of plain SGD",
    "memory, MB",
    "of plain SGD",
)
TEXT = """\
# What a training step costs

Each number is a median over steps. The contenders take turns, each in a separate process. *Plain SGD* is
forward, loss, backward and a step of `torch.optim.SGD` on a given batch. *Ours* is a whole step of the method
with sampling, look-up, noise and curves; batch clipping's work once per epoch is excluded. Opacus
takes a given batch and adds float32 noise. Memory is the largest growth of the process; ours includes 20,000
examples. On a busy machine compare the processor time of all threads. It includes the thread that draws noise
ahead.

"""


def bench(
    only: Annotated[
        list[str] | None, typer.Option("--only", help="A case, such as lenet5; may be given again.")
    ] = None,
    threads: Annotated[list[int] | None, typer.Option(min=1, help="Threads; may be given again.")] = None,
    pinned: Annotated[bool, typer.Option(help="Each way on as many cores as it has threads.")] = False,
    seconds: Annotated[float, typer.Option(min=0, help="Seconds for each way of each step.")] = 2.0,
    device: Annotated[str, typer.Option(help="cpu, cuda or cuda:N.")] = "cpu",
) -> None:
    """Measure training steps in turn and write the table to reports/benchmarks."""
    for case in only or []:
        if case not in CASES:
            raise typer.BadParameter(f"{case}: no such case; allowed: {', '.join(CASES)}")
    lines: list[list[str]] = []
    for case in only or CASES:
        for batch in CASES[case].batches:
            every = [Contender(case, way, batch, device) for way in WAYS]
            contenders = [contender for contender in every if contender.possible]
            for count in threads or [1]:
                print(f"{case}, batches of {batch}, {count} threads", flush=True)
                lines += table(contenders, count, compare(contenders, count, seconds, pinned))
    rows = [HEAD, ["---"] * len(HEAD), *lines]
    measured_on = "; ".join([*machine(), *(["pinned"] if pinned else [])])
    write_text(TABLE, f"{TEXT}{measured_on}\n\n" + "".join(f"| {' | '.join(row)} |\n" for row in rows))
    print(f"benchmarks: {TABLE}")


def table(
    contenders: Iterable[Contender], threads: int, measured: Iterable[Measured | Exception]
) -> list[list[str]]:
    """Lines of the table for one case and batch size, one per contender; plain SGD must come first."""
    lines, plain = [], None
    for contender, one in zip(contenders, measured, strict=True):
        setting = [contender.case, f"{contender.batch}", f"{threads}", contender.way]
        if isinstance(one, Exception):
            lines.append([*setting, f"left out: {str(one).splitlines()[0][:200]}", *[""] * 5])
            continue
        plain = one if contender.way == PLAIN else plain
        numbers: list[Any] = []
        for text, taken, base in zip(
            (f"{1000 * one.wall:.4g}", f"{1000 * one.processor:.4g}", f"{one.megabytes:.0f}"),
            one,
            plain or one,
            strict=True,
        ):
            numbers += [text, f"{taken / base:.2f}" if plain and base else ""]
        lines.append([*setting, *numbers])
    return lines


def machine() -> list[str]:
    """Hardware, system, and versions of the libraries and of this project."""
    commit, dirty = provenance.revision()
    gpu = [f"gpu {torch.cuda.get_device_name()}"] if torch.cuda.is_available() else []
    return [
        f"processor {processor()}, {len(os.sched_getaffinity(0))} of {os.cpu_count()} cores",
        *gpu,
        f"system {platform.platform()}",
        *(f"{package} {metadata.version(package)}" for package in ("torch", "numpy", "opacus")),
        f"commit {commit}{' with changes' if dirty else ''}",
    ]


def processor() -> str:
    """Name of the processor, or its architecture if the system has no name."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


if __name__ == "__main__":
    typer.run(bench)
