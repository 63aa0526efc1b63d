"""`dprepro repro`: all missing results of rows, many rows at once."""

import shlex
import time
from datetime import timedelta
from shutil import which
from typing import Annotated

import typer

from dprepro.errors import UserError, counted
from dprepro.stages.train import CheckpointEvery

LOCAL = "local"


def repro(
    rows: Annotated[
        list[str] | None,
        typer.Argument(help="Keys of 'rows' in params.yaml; default: all rows."),
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Number of rows to compute at once.")] = 1,
    on: Annotated[
        str,
        typer.Option(
            help="Where rows are computed: local, or the command that starts a process elsewhere, such as "
            "'srun --gpus=1'. See docs/clusters.md."
        ),
    ] = LOCAL,
    checkpoint_every: CheckpointEvery = 60.0,
) -> None:
    """Compute all missing results of rows: data, training, evaluation and ledger; update dvc.lock.

    After a stop or kill, the same command continues. If a row fails, the others continue, and the last lines
    name the failed row. `dprepro plan` has the rows and how long such rows took.
    """
    from dprepro.pipeline import params
    from dprepro.pipeline.cluster import coordinator, tasks
    from dprepro.pipeline.identity import entries
    from dprepro.pipeline.identity.plan import gpu_here
    from dprepro.pipeline.transport import dvclock

    words = [] if on == LOCAL else shlex.split(on)
    if on != LOCAL and (not words or which(words[0]) is None):
        raise UserError(f"--on {on}: no such command; allowed: {LOCAL}, or one such as 'srun --gpus=1'")
    settings, begun = params.load(), time.monotonic()
    for key in rows or ():
        settings.row(key)
    gpu, waits = bool(words) or gpu_here(), list[str]()
    done, failed = dict[str, float](), dict[str, str]()
    for keys in tasks.rounds(settings, rows or settings.rows):
        for stage in tasks.missing_data(settings, keys) if dvclock.available() else ():
            entries.write(settings)
            print(f"{stage}: by DVC", flush=True)
            # the rows whose networks are in the data are trained by the coordinator, not by DVC
            alone = () if stage.startswith("prepare@") else ("--single-item",)
            try:
                dvclock.dvc("repro", *alone, stage)
            except UserError as problem:  # the rows on these data fail; others are trained
                print(problem, flush=True)
        todo = tasks.todo(settings, keys, ("--checkpoint-every", f"{checkpoint_every:g}"))
        waits += [task.name for task in todo if task.needs == "gpu" and not gpu]
        if todo := [task for task in todo if task.name not in waits]:
            print(f"{counted(len(todo), 'row')} on {on}; logs: {tasks.LOGS}", flush=True)
            # with fewer rows than jobs, each row gets more cores
            new_done, new_failed = coordinator.run(settings, todo, words, min(jobs, len(todo)))
            done, failed = done | new_done, failed | new_failed
    time_each = f"in {_span(time.monotonic() - begun)}; one after the other {_span(sum(done.values()))}"
    print(f"{len(done)} done, {len(failed)} failed, {len(waits)} waiting for a GPU, {time_each}")
    if failed:
        raise UserError("\n".join(f"{name}: {why}" for name, why in failed.items()))


def _span(seconds: float) -> timedelta:
    return timedelta(seconds=round(seconds))
