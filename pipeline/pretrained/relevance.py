"""How relevant features are to a trained network, as training takes it from prepared data.

``data/prepared/NAME/`` of an entry of ``relevances`` is its prepared data set's folder with one file more,
``relevance.npz``: the array ``mean``, float64, of the shape of one example
(`pipeline.pretrained.average_relevance`).
"""

import torch

from pipeline.data.prepared import PREPARED, Prepared
from pipeline.errors import UserError
from pipeline.methods.base import Relevances
from pipeline.params import PARAMS, Settings
from pipeline.pretrained.joining import read_arrays


def read_relevance(data: Prepared, device: torch.device) -> Relevances | None:
    """The relevances that prepared data come with, or None.

    Raises:
        UserError: their file is missing or damaged.
    """
    if data.relevance is None:
        return None
    mean, about = read_arrays(data.relevance).get("mean"), data.manifest["relevance"]
    if mean is None or mean.shape != data.input_shape:
        raise UserError(
            f"{data.relevance}: no relevances of features of shape {data.input_shape}; "
            f"run `dprepro relevance {data.name}` again"
        )
    return Relevances(mean.to(device), about["examples"], about["of"] == "public", about["informed"])


def check_relevance(data: Prepared, settings: Settings) -> None:
    """Make sure that prepared data have the relevances that params.yaml means, or none.

    Raises:
        UserError: they are other ones; the line says which command makes the right ones.
    """
    wanted = settings.relevance_digest(data.name) if data.name in settings.relevances else None
    if data.manifest.get("relevance", {}).get("config") != wanted:
        raise UserError(
            f"{PREPARED / data.name}: other relevances than {PARAMS} has now; "
            f"run `dprepro {settings.stage_of(data.name)} {data.name}`"
        )
