"""`python -m benchmarks.commands`: time and memory of commands that should answer at once."""

import os
import shlex
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Annotated

import typer

COMMANDS = {  # with the intended limits of seconds and MB
    "epsilon --examples 60000 --batch 256 --epochs 10 --sigma 1.1 --delta 1e-5": (2.0, 250),
    "plan": (2.0, 250),
    "status": (2.0, 250),
    "compare davody-t5-ln-lenet5 davody-t5-lenet5": (2.0, 250),
    "verify davody-t5-lenet5": (5.0, None),
}
PREDICT = (4.0, None)


def measured(command: str, repeats: int) -> tuple[float, float, float]:
    """Medians of a command's seconds and processor seconds, and its largest memory in MB."""
    rounds = []
    for _ in range(repeats):
        begun = time.monotonic()
        process = subprocess.Popen(
            [sys.executable, "-m", "dprepro.stages", *shlex.split(command)], stdout=subprocess.DEVNULL
        )
        _, status, usage = os.wait4(process.pid, 0)
        if status:
            raise SystemExit(f"{command}: status {os.waitstatus_to_exitcode(status)}")
        rounds.append((time.monotonic() - begun, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024))
    seconds, processor, memory = zip(*rounds, strict=True)
    return median(seconds), median(processor), max(memory)


def main(
    repeats: Annotated[int, typer.Option(min=1, help="Runs of each command after a first one.")] = 3,
    folder: Annotated[Path | None, typer.Option(help="An exported network, for `predict`.")] = None,
    inputs: Annotated[Path | None, typer.Option(help="A file of inputs for it.")] = None,
) -> None:
    """Print a table of the commands' time, processor time and memory."""
    commands = dict(COMMANDS)
    if folder and inputs:
        commands[shlex.join(["predict", str(folder), str(inputs)])] = PREDICT
    print("| command | seconds | processor seconds | MB | meant |\n| --- | --- | --- | --- | --- |")
    for command, (most, memory) in commands.items():
        measured(command, 1)  # compiles changed modules
        seconds, processor, used = measured(command, repeats)
        meant = f"{most:g} s" + (f", {memory} MB" if memory else "")
        print(f"| `{command}` | {seconds:.1f} | {processor:.1f} | {used:.0f} | {meant} |", flush=True)


if __name__ == "__main__":
    typer.run(main)
