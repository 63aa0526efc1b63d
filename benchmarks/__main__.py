"""`python -m benchmarks`: what a private training step costs, beside plain SGD and Opacus."""

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
from pipeline.files import write_text
from pipeline.identity import provenance

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
)
TEXT = """\
# What a training step costs

Medians of steps that were measured in turn, each way in a process of its own. *Plain SGD* is forward, loss,
backward and a step of `torch.optim.SGD` on a batch that is there already, as anybody writes it; *ours* is a
whole step of the method, with sampling, noise and what goes into the history, without what batch clipping
does once an epoch. Memory is what the process grew by, at most. On a machine that others use too, the
processor's time of all threads is what to compare; it has the noise that a thread of its own draws ahead.

"""


def bench(
    only: Annotated[
        list[str] | None, typer.Option("--only", help="A case, such as lenet5; may be given again.")
    ] = None,
    threads: Annotated[list[int] | None, typer.Option(min=1, help="Threads; may be given again.")] = None,
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
                lines += table(contenders, count, compare(contenders, count, seconds))
    rows = [HEAD, ["---"] * len(HEAD), *lines]
    write_text(
        TABLE, f"{TEXT}{'; '.join(machine())}\n\n" + "".join(f"| {' | '.join(row)} |\n" for row in rows)
    )
    print(f"benchmarks: {TABLE}")


def table(
    contenders: Iterable[Contender], threads: int, measured: Iterable[Measured | Exception]
) -> list[list[str]]:
    """Lines of the table for the ways to take one step, beside plain SGD, which comes first."""
    lines, plain = [], None
    for contender, one in zip(contenders, measured, strict=True):
        setting = [contender.case, f"{contender.batch}", f"{threads}", contender.way]
        if isinstance(one, Exception):
            lines.append([*setting, f"not possible: {str(one).splitlines()[0][:200]}", *[""] * 4])
            continue
        plain = one if contender.way == PLAIN else plain
        numbers: list[Any] = []
        for taken, base in zip(one[:2], plain or one, strict=False):
            numbers += [f"{1000 * taken:.4g}", f"{taken / base:.2f}" if plain else ""]
        lines.append([*setting, *numbers, f"{one.megabytes:.0f}"])
    return lines


def machine() -> list[str]:
    """What was measured on: hardware, system, and versions of the libraries and of this project."""
    commit, dirty = provenance.revision()
    gpu = [f"gpu {torch.cuda.get_device_name()}"] if torch.cuda.is_available() else []
    return [
        f"processor {platform.processor() or platform.machine()}, {os.cpu_count()} cores",
        *gpu,
        f"system {platform.platform()}",
        *(f"{package} {metadata.version(package)}" for package in ("torch", "numpy", "opacus")),
        f"commit {commit}{' with changes' if dirty else ''}",
    ]


if __name__ == "__main__":
    typer.run(bench)
