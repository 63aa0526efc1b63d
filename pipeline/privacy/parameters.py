"""The parameters of a guarantee, as settings spell them."""

import math
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

# How a batch of m is drawn from the N. 'fixed': m different ones, anew each step. 'replacement': m
# independent draws. 'poisson': each with probability m / N. 'shuffled': on through a new order an epoch.
Sampling = Literal["fixed", "replacement", "poisson", "shuffled"]
Delta = Annotated[float, Field(gt=0, lt=1)]


def _epsilon(value: Any) -> Any:
    return math.inf if value in ("inf", "Infinity") else value


Epsilon = Annotated[float, BeforeValidator(_epsilon), Field(gt=0)]
