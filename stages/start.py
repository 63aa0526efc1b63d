"""`dprepro start`: prepared data with public initial weights, in data/prepared."""

from typing import Annotated

import typer


def start(
    name: Annotated[str, typer.Argument(help="A key of 'starts' in params.yaml.")],
) -> None:
    """Write a prepared data set that also has initial weights, from a row trained on public data."""
    from dprepro.pipeline.data.declaration import check_declared
    from dprepro.pipeline.params import load, pick
    from dprepro.pipeline.pretrained.starts import make_start

    loaded = load()
    check_declared(pick(loaded.starts, name, "start").data, loaded)
    print(f"{make_start(name, loaded)}: starts from {loaded.starts[name].row}")
