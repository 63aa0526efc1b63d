"""`dprepro rerun ROW`: train a row again and compare it with its record."""

from typing import Annotated

import typer

from dprepro.stages.train import CheckpointEvery, Device, Physical, Workers, ready, side_by_side


def rerun(
    row: Annotated[str, typer.Argument(help="A row with a record: a key of `rows` in params.yaml.")],
    level: Annotated[str | None, typer.Option(help="The only level to train, such as epsilon=3.")] = None,
    seeds: Annotated[
        int | None,
        typer.Option(min=1, help="Train the first N seeds of each level; default: all recorded seeds."),
    ] = None,
    device: Device = "auto",
    physical: Physical = 0,
    workers: Workers = 0,
    checkpoint_every: CheckpointEvery = 60.0,
) -> None:
    """Train a row again and compare it with its record; records and weights stay unchanged."""
    from dprepro.pipeline import params
    from dprepro.pipeline.rerun import RERUNS
    from dprepro.pipeline.rerun import rerun as run
    from dprepro.stages.answers import compared
    from dprepro.stages.progress import showing

    loaded = params.load()
    data, how = ready(row, loaded, device, physical)
    with showing(f"rerun {row}") as show:
        differences = run(
            *(row, loaded, data, how, show),
            level=level,
            seeds=seeds,
            checkpoint_every=checkpoint_every,
            workers=side_by_side(workers, how),
        )
    for difference in differences:
        print(compared(difference))
    print(f"The rerun is in {RERUNS / row}; delete that folder to train again.")
    declared = loaded.row(row)
    if not declared.reproducible and any(level.private for level in declared.resolved):
        print("A rerun is a private training of its own: the row's ledger does not count it.")
