"""`dprepro repro`: everything that rows lack, many at once."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.live import Live
from rich.table import Table

from pipeline.errors import UserError, printable
from stages.train import CheckpointEvery

if TYPE_CHECKING:
    from pipeline.cluster.coordinator import Look, Running, Show, Summary
    from pipeline.cluster.tasks import Todo

ASKED_FROM = 3600.0  # seconds of training that nobody starts by mistake
PLAIN_EVERY = 60.0  # seconds between lines of a task that runs, where nobody sees a live view


def repro(
    rows: Annotated[
        list[str] | None, typer.Argument(help="Keys of 'rows' in params.yaml; none: all, and all accounts.")
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, help="How many rows at once.")] = 1,
    on: Annotated[
        str,
        typer.Option(
            help="Where: 'local', this machine; 'slurm', a Slurm job for each of --jobs; or a Python file "
            "that holds a Parsl Config named 'config'. See docs/clusters.md."
        ),
    ] = "local",
    audit: Annotated[bool, typer.Option("--audit", help="Attack the rows' code too.")] = False,
    push: Annotated[
        bool, typer.Option("--push", help="Push what was trained to the DVC remote at the end.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Don't ask before hours of training.")] = False,
    checkpoint_every: CheckpointEvery = 60.0,
) -> None:
    """Do all that rows lack: data, training, evaluation, ledger, several rows at once; sign them in dvc.lock.

    Stopped or killed, the same command goes on. A row that fails stops no other; the end names them all.
    """
    from pipeline import params
    from pipeline.cluster import coordinator, pools, tasks
    from pipeline.transport import dvclock

    settings = params.load()
    work = tasks.todo(settings, rows or (), audit)
    count = len(work.data) + len(work.tasks)
    if not count and not work.unsigned:
        print("nothing to do")
        return
    slots = pools.pool(on, jobs, settings, checkpoint_every)
    told = f"{count} tasks, {jobs} at once on {on}"
    if not yes and sys.stdin.isatty() and (long := _longer(work, jobs)) is not None:
        typer.confirm(f"{told}: some {long}, by rows that ran and by operations. Go on?", abort=True)
    print(told, flush=True)
    with _showing() as show:
        summary = coordinator.run(
            settings,
            work,
            slots,
            jobs,
            show,
            ("--checkpoint-every", f"{checkpoint_every:g}"),
            rows or (),
        )
    pushed = ""
    if push and (trained := [task.name for task, _ in summary.done if task.trains]):
        dvclock.dvc("push", *(f"train@{row}" for row in trained))
        pushed = ", pushed"
    _tell(summary, pushed)


def _longer(work: "Todo", jobs: int) -> timedelta | None:
    """How long it will take without rows that need a GPU, where that is more than `ASKED_FROM`."""
    known = sum(task.seconds or 0.0 for task in work.tasks if task.needs == "cpu") / jobs
    return timedelta(seconds=round(known, -2)) if known > ASKED_FROM else None


def _tell(summary: "Summary", pushed: str) -> None:
    """Every task by name.

    Raises:
        UserError: some failed.
    """
    for task, ended in summary.done:
        print(f"{task.name}: done, {timedelta(seconds=round(ended.seconds))} on {ended.where}")
    for name in summary.left_out:
        print(f"{name}: waits for a GPU")
    took, worked = summary.seconds, sum(ended.seconds for _, ended in summary.done)
    print(
        f"{len(summary.done)} done{pushed}, {len(summary.failed)} failed, {len(summary.left_out)} left out, "
        f"in {timedelta(seconds=round(took))}; one after the other {timedelta(seconds=round(worked))}"
    )
    if summary.failed:
        raise UserError("\n".join(f"{name}: failed: {why}" for name, why in summary.failed))


@contextmanager
def _showing() -> "Iterator[Show]":
    """A function that shows where everything stands: a view on a terminal, lines elsewhere."""
    console = Console(stderr=True)
    if not console.is_terminal:
        told: dict[str, tuple[float, str]] = {}

        def plain(look: "Look") -> None:
            for line in _events(look):
                print(line, flush=True)
            now = time.monotonic()
            for one in look.running:
                before, line = told.get(one.task.name, (one.since, ""))
                if now - before >= PLAIN_EVERY and one.line != line:
                    print(f"{one.task.name}: {_without_name(one)}", flush=True)
                    told[one.task.name] = (now, one.line)

        yield plain
        return
    with Live(console=console, refresh_per_second=2) as live:

        def view(look: "Look") -> None:
            for line in _events(look):
                live.console.print(line, highlight=False, markup=False)
            table = Table(box=None, pad_edge=False, show_header=False, expand=True)
            table.add_column(no_wrap=True)
            table.add_column(justify="right", no_wrap=True)
            table.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
            for one in look.running:
                spent = timedelta(seconds=int(time.monotonic() - one.since))
                table.add_row(one.task.name, str(spent), _without_name(one))
            table.add_row(
                f"{look.done} of {look.tasks} done", "", f"{look.failed} failed" if look.failed else ""
            )
            live.update(table)

        yield view


def _without_name(one: "Running") -> str:
    """The last line of a task's log; most begin with its name."""
    return printable(one.line.removeprefix(f"{one.task.name}: "))


def _events(look: "Look") -> Iterator[str]:
    for event in look.events:
        if event.kind == "signed":
            yield f"signed: {event.name} stages"
        elif event.kind == "not signed":
            yield f"not signed yet: {event.name} stages: {printable(event.note)}"
        elif event.kind != "began":
            again = "its worker died, tried again: " if event.kind == "again" else f"{event.kind}, "
            left = look.tasks - look.done - look.failed
            yield printable(f"{event.name}: {again}{event.note} ({left} left)")
