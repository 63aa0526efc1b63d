"""`dprepro rerun ROW`: train a row again and compare it with its record."""

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from dprepro.stages.fetch import Mirror, fetch
from dprepro.stages.prepare import prepare
from dprepro.stages.relevance import relevance
from dprepro.stages.start import start
from dprepro.stages.train import CheckpointEvery, Device, Physical, Workers, ready, side_by_side

if TYPE_CHECKING:
    from pathlib import Path

    from dprepro.pipeline.params import Settings


def rerun(
    row: Annotated[str, typer.Argument(help="A row with a record: a key of `rows` in params.yaml.")],
    level: Annotated[
        str | None, typer.Option(help="The only level to train, such as epsilon=3 or 3.")
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option(min=1, help="Train the first N seeds of each level; default: all recorded seeds."),
    ] = None,
    device: Device = "auto",
    physical: Physical = 0,
    workers: Workers = 0,
    checkpoint_every: CheckpointEvery = 60.0,
    mirror: Mirror = None,
) -> None:
    """Train a row again and compare it with its record; records and weights stay unchanged.

    Missing data are fetched and prepared first.
    """
    from dprepro.pipeline import params
    from dprepro.pipeline.rerun import RERUNS
    from dprepro.pipeline.rerun import rerun as run
    from dprepro.stages.answers import compared
    from dprepro.stages.progress import showing

    loaded = params.load()
    _bring(loaded.row(row).data, loaded, mirror)
    data, how = ready(row, loaded, device, physical)
    with showing(f"rerun {row}") as show:
        differences = run(
            *(row, loaded, data, how, show, partial(print, flush=True)),
            level=level,
            seeds=seeds,
            checkpoint_every=checkpoint_every,
            workers=side_by_side(workers, how),
        )
    for difference in differences:
        print(compared(difference, "trained again"))
    print(f"The rerun is in {RERUNS / row}; delete that folder to train again.")
    declared = loaded.row(row)
    if not declared.reproducible and any(level.private for level in declared.resolved):
        print("A rerun is a private training of its own: the row's ledger does not count it.")


def _bring(name: str, settings: "Settings", mirror: "Path | None") -> None:
    """Fetch and prepare the data set ``name`` if it is not here, with its initial weights or relevances."""
    from dprepro.pipeline.data.prepared import manifest_here
    from dprepro.pipeline.data.raw import RAW

    joined = settings.derived.get(name)
    base = joined.data if joined else name
    if manifest_here(base) is None:
        data = settings.data[base]
        for raw in dict.fromkeys((data.raw, data.public.raw)):
            if not (RAW / raw).exists():
                fetch(raw, mirror)
        prepare(base)
    if joined and manifest_here(name) is None:
        (start if name in settings.starts else relevance)(name)
