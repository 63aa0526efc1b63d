"""`dprepro search NAME`: hyper-parameter search on validation data."""

from typing import Annotated

import typer

from dprepro.stages.train import Device, Physical, Workers, ready, side_by_side


def search(
    name: Annotated[str, typer.Argument(help="A key of `searches` in params.yaml.")],
    device: Device = "auto",
    physical: Physical = 0,
    workers: Workers = 0,
) -> None:
    """Train a row with each setting of a grid, and write the best by validation accuracy into params.yaml."""
    from dprepro.pipeline import params
    from dprepro.pipeline.params.adding import write_chosen
    from dprepro.pipeline.results import records
    from dprepro.pipeline.training import search as library
    from dprepro.stages.progress import showing

    loaded = params.load()
    asked = params.pick(loaded.searches, name, "search")
    data, how = ready(asked.row, loaded, device, physical, anywhere=True)
    with showing(f"search {name}") as show:
        path = library.search(name, loaded, data, how, show, workers=side_by_side(workers, how))
    print(f"search {name}: {path}")
    record = records.read_search(name)
    assert record is not None, "it was just written"
    for level, chosen in record.chosen.items():
        values = (
            f"{key} {value:g}" if isinstance(value, float) else f"{key} {value}"
            for key, value in chosen.items()
        )
        print(f"  {level.replace('=', ' = ')}: {', '.join(values)}")
    for row in write_chosen({name: record.chosen}):
        print(f"{params.PARAMS}: rows.{row}: levels now have these values")
