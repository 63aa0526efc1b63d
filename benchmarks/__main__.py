"""`python -m benchmarks`: what a private training step costs, beside plain SGD and Opacus."""

from pathlib import Path
from typing import Annotated

import typer

from benchmarks.cases import CASES
from benchmarks.measuring import compare
from benchmarks.results import Line, write
from benchmarks.ways import BEST, FLOATS, GHOST, HOOKS, OURS, PLAIN, WAYS, Contender


def bench(
    only: Annotated[
        list[str] | None, typer.Option("--only", help="A case, such as lenet5; may be given again.")
    ] = None,
    batch: Annotated[
        list[int] | None, typer.Option(min=1, help="Examples of a step; may be given again.")
    ] = None,
    threads: Annotated[list[int] | None, typer.Option(min=1, help="Threads; may be given again.")] = None,
    replicas: Annotated[
        list[int] | None, typer.Option(min=1, help="Replicas of ours; may be given again.")
    ] = None,
    seconds: Annotated[float, typer.Option(min=0, help="Seconds for each way of each step.")] = 2.0,
    full: Annotated[
        bool, typer.Option(help="Every case, way and batch size; without it some minutes' worth.")
    ] = False,
    device: Annotated[str, typer.Option(help="cpu, cuda or cuda:N.")] = "cpu",
    name: Annotated[str, typer.Option(help="Of the files in reports/benchmarks.")] = "steps",
) -> None:
    """Measure training steps in turn and write table, figure and JSON to reports/benchmarks."""
    for case in only or []:
        if case not in CASES:
            raise typer.BadParameter(f"{case}: no such case; allowed: {', '.join(CASES)}")

    def show(contender: Contender) -> None:
        print(f"{contender.case.name}, batches of {contender.batch}: {contender.way}", flush=True)

    ways = WAYS if full else (PLAIN, BEST, OURS, FLOATS, HOOKS, GHOST)
    lines = []
    for case in only or CASES:
        settings = CASES[case]
        for size in batch or (settings.batches if full or only else settings.short):
            contenders = [
                Contender(settings, way, size, count, device)
                for count in replicas or settings.replicas
                for way in ways
            ]
            possible = [contender for contender in contenders if contender.possible]
            for count in threads or [1]:
                measurements = compare(possible, count, seconds, show)
                lines += [
                    Line(contender, count, measured)
                    for contender, measured in zip(possible, measurements, strict=True)
                ]
    folder = write(name, lines, Path())
    print(f"benchmarks: {folder / name}.md")


if __name__ == "__main__":
    typer.run(bench)
