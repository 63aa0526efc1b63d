"""`dprepro repro`: all missing results of rows, many rows at once."""

import sys
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

from dprepro.errors import UserError
from dprepro.stages.train import CheckpointEvery

if TYPE_CHECKING:
    from dprepro.pipeline.cluster.tasks import Todo

ASKED_FROM = 3600.0  # seconds of training from which the command asks for confirmation


def repro(
    rows: Annotated[
        list[str] | None,
        typer.Argument(help="Keys of 'rows' in params.yaml; default: all rows and accounts."),
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Number of rows to compute at once.")] = 1,
    on: Annotated[
        str,
        typer.Option(
            help="Where rows are computed. local: this machine. slurm: as many Slurm jobs as --jobs. "
            "FILE.py: its Parsl Config named 'config'. See docs/clusters.md."
        ),
    ] = "local",
    audit: Annotated[bool, typer.Option("--audit", help="Also attack the rows' code.")] = False,
    push: Annotated[
        bool, typer.Option("--push", help="Push new results to the DVC remote at the end.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Don't ask before hours of training.")] = False,
    checkpoint_every: CheckpointEvery = 60.0,
) -> None:
    """Compute all missing results of rows: data, training, evaluation and ledger; update dvc.lock.

    After a stop or kill, the same command continues. If a row fails, the others continue, and the last lines
    name the failed row.
    """
    from dprepro.pipeline import params
    from dprepro.pipeline.cluster import coordinator, executors, tasks, worker
    from dprepro.pipeline.transport import dvclock

    settings = params.load()
    work = tasks.todo(settings, rows or (), audit, ("--checkpoint-every", f"{checkpoint_every:g}"))
    if not work.tasks and not work.unsigned:
        print("nothing to do")
        return
    if on == executors.LOCAL:  # with fewer rows than jobs, each row gets more cores
        jobs = min(jobs, max(1, sum(task.name in settings.rows for task in work.tasks)))
    slots = executors.slots(on, jobs)
    summary_line = f"{len(work.tasks)} tasks on {on}"
    if not yes and sys.stdin.isatty() and (long := _longer(work, jobs)) is not None:
        typer.confirm(
            f"{summary_line}: about {long}, estimated from earlier rows and operations. Continue?", abort=True
        )
    print(f"{summary_line}; logs: {worker.LOGS}", flush=True)
    begun = time.monotonic()
    console = Console()
    with console.status("") as status:

        def show(lines: list[str]) -> None:
            status.update(Text("\n".join(line[: console.width - 3] for line in lines)))

        summary = coordinator.run(settings, work, slots, show)
    pushed = ""
    trained = [f"train@{task.name}" for task in work.tasks if task.trains and task.name in summary.done]
    if push and trained:
        dvclock.dvc("push", *trained)
        pushed = ", pushed"
    worked = sum(done.seconds for done in summary.done.values())
    print(
        f"{len(summary.done)} done{pushed}, {len(summary.failed)} failed, {len(summary.waits_for_gpu)} wait "
        f"for a GPU, in {_span(time.monotonic() - begun)}; one after the other {_span(worked)}"
    )
    if summary.failed:
        raise UserError("\n".join(f"{name}: failed: {why}" for name, why in summary.failed.items()))


def _longer(work: "Todo", jobs: int) -> timedelta | None:
    """Estimated duration; None if it is at most `ASKED_FROM`.

    Tasks that need a GPU count if they run: if they were named, or if this machine has a GPU.
    """
    from dprepro.pipeline.identity.plan import gpu_here

    gpu = any(task.needs == "gpu" for task in work.tasks) and gpu_here()
    known = sum(task.seconds for task in work.tasks if task.needs == "cpu" or task.named or gpu) / jobs
    return timedelta(seconds=round(known, -2)) if known > ASKED_FROM else None


def _span(seconds: float) -> timedelta:
    return timedelta(seconds=round(seconds))
