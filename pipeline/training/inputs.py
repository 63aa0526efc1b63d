"""What a method's guarantee takes for granted of its inputs."""

import numpy as np

from pipeline.data.prepared import Prepared
from pipeline.errors import UserError
from pipeline.methods.laplace.settings import IlmSettings
from pipeline.methods.rooms import method_settings


def check_inputs(data: Prepared, method: str) -> None:
    """Laplace noise is for features in [0, 1]: stored as bytes they are, as other numbers they may not be.

    Raises:
        UserError: they are not.
    """
    if not issubclass(method_settings()[method], IlmSettings):
        return
    inputs = data.splits["train"].inputs
    if inputs.dtype == np.uint8:
        return
    low, high = float(np.min(inputs)), float(np.max(inputs))
    if not (low >= 0 and high <= 1):
        raise UserError(
            f"data/prepared/{data.name}: inputs lie between {low:g} and {high:g}; method {method!r} adds "
            "noise for features in [0, 1]"
        )
