"""`dprepro relevance`: prepared data with each feature's relevance to a network, in data/prepared."""

from typing import Annotated

import typer

from dprepro.stages.train import Device, execution


def relevance(
    name: Annotated[str, typer.Argument(help="A key of 'relevances' in params.yaml.")],
    device: Device = "auto",
) -> None:
    """Write a prepared data set that also has each feature's mean relevance to a trained network."""
    from dprepro.pipeline.data.declaration import check_declared
    from dprepro.pipeline.params import load, pick
    from dprepro.pipeline.pretrained.relevance import make_relevance

    loaded = load()
    check_declared(pick(loaded.relevances, name, "relevance").data, loaded)
    how = execution(device)
    folder = make_relevance(name, loaded, device=how.device)
    print(f"{folder}: relevances to {loaded.relevances[name].row}")
