"""What a method's guarantee takes for granted of its inputs."""

import numpy as np

from pipeline.data.prepared import Prepared
from pipeline.errors import UserError
from pipeline.methods.rooms import method_settings


def check_inputs(data: Prepared, method: str) -> None:
    """Make sure that inputs lie in [0, 1] where noise is for such: bytes do, other numbers may not.

    Raises:
        UserError: they are not.
    """
    inputs = data.splits["train"].inputs
    if not method_settings()[method].unit_inputs or inputs.dtype == np.uint8:
        return
    low, high = float(np.min(inputs)), float(np.max(inputs))
    if not (low >= 0 and high <= 1):
        raise UserError(
            f"data/prepared/{data.name}: inputs lie between {low:g} and {high:g}; method {method!r} adds "
            "noise for features in [0, 1]"
        )
