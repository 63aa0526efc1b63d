"""The parameters of a guarantee, as settings spell them."""

import math
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

# How a batch of m is drawn from the N. 'fixed': m different ones, anew each step. 'replacement': m
# independent draws. 'poisson': each with probability m / N. 'shuffled': on through a new order an epoch.
# 'allocation': each example in one batch of an epoch, drawn by itself (balls and bins).
Sampling = Literal["fixed", "replacement", "poisson", "shuffled", "allocation"]
# How noise is made. 'float32': numbers of that type, added to sums of that type, which holds for real numbers
# only. 'grid': integers on a grid, which a rounded real number's probabilities have exactly.
Noise = Literal["float32", "grid"]
# The reason why an example's clipped gradient is a function of that example alone. 'by_construction': a pass
# runs the network on one example, under `vmap`. 'one_at_a_time': a pass sees one example. 'tried': calls on
# made-up inputs, and checks in training; nothing proves it.
Isolation = Literal["by_construction", "one_at_a_time", "tried"]
# Far below any use, and far above where floats end, beyond which a bound could no longer be told from none.
LEAST_DELTA = 1e-100
# What may fail every other time promises nothing; near 1 rounding would decide what is left of it.
Delta = Annotated[float, Field(ge=LEAST_DELTA, lt=0.5)]


def _epsilon(value: Any) -> Any:
    return math.inf if value in ("inf", "Infinity") else value


Epsilon = Annotated[float, BeforeValidator(_epsilon), Field(gt=0)]

# Largest delta times N without a remark: delta is the chance that an example's protection fails altogether
LARGE_DELTA = 0.1


def is_large_delta(delta: float | None, examples: int) -> bool:
    """True where ``delta`` is above a tenth of 1/N for N ``examples``."""
    return delta is not None and delta * examples > LARGE_DELTA * (1 + 1e-9)
