"""`dprepro relevance`: prepared data with their features' relevances to a network, in data/prepared."""

from typing import Annotated

import typer

from stages.train import Device


def relevance(
    name: Annotated[str, typer.Argument(help="A key of 'relevances' in params.yaml.")],
    device: Device = "auto",
) -> None:
    """Join a prepared data set with each feature's mean relevance to a trained row's network."""
    from pipeline.data.declaration import check_declared
    from pipeline.params import load, pick
    from pipeline.pretrained.relevance import make_relevance
    from stages.train import execution

    loaded = load()
    check_declared(pick(loaded.relevances, name, "relevance").data, loaded)
    how = execution(device)
    folder = make_relevance(name, loaded, device=how.device)
    print(f"{folder}: relevances to {loaded.relevances[name].row}")
