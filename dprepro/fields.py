"""Types of fields in YAML and JSON files and of parameters, and the strict, frozen base class of records."""

import math
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from dprepro.errors import shown

KEY = r"^[a-z0-9]+(-[a-z0-9]+)*$"
Key = Annotated[str, Field(pattern=KEY)]
Count = Annotated[int, Field(ge=1, le=10**12, strict=True)]  # larger ones can't be computed
LARGEST = 1e150  # its square is a number, too
# strict numbers are neither booleans nor texts
Finite = Annotated[float, Field(ge=-LARGEST, le=LARGEST, strict=True)]
Positive = Annotated[float, Field(gt=0, le=LARGEST, strict=True)]
Passes = Annotated[Positive, Field(le=1e12)]  # over the examples
NotNegative = Annotated[float, Field(ge=0, le=LARGEST, strict=True)]
Share = Annotated[float, Field(ge=0, lt=1, strict=True)]
Probability = Annotated[float, Field(ge=0, le=1)]
# Sampling of a batch of m from N examples. 'fixed': m different examples, drawn anew each step.
# 'replacement': m independent draws. 'poisson': each example with probability m / N. 'shuffled': consecutive
# parts of a new order in each epoch. 'allocation': each example in one random batch of an epoch (balls and
# bins), or in several, independently of other examples.
Sampling = Literal["fixed", "replacement", "poisson", "shuffled", "allocation"]
# Kind of noise. 'float32': floating-point numbers added to floating-point sums; its proofs ignore
# floating-point effects. 'grid': integers on a grid, with exactly the probabilities of rounded real numbers.
Noise = Literal["float32", "grid"]
# Reason why an example's clipped gradient is a function of that example alone. 'by_construction': the network
# runs on one example, under `vmap`, or has only layers that torch defines for one example at a time.
# 'one_at_a_time': it runs on one example after the other.
Isolation = Literal["by_construction", "one_at_a_time"]
# far below any use, and far above the smallest float
LEAST_DELTA = 1e-100
# a delta of .5 or more promises nothing, and near 1 rounding would decide
Delta = Annotated[float, Field(ge=LEAST_DELTA, lt=0.5, strict=True)]


def _epsilon(value: Any) -> Any:
    return math.inf if value in ("inf", "Infinity") else value


Epsilon = Annotated[float, BeforeValidator(_epsilon), Field(gt=0, strict=True)]

# largest delta times N without a remark: delta is the probability that an example's protection fails
LARGE_DELTA = 0.1


def is_large_delta(delta: float | None, examples: int) -> bool:
    """True if ``delta`` is above a tenth of 1/N for N ``examples``."""
    return delta is not None and delta * examples > LARGE_DELTA * (1 + 1e-9)


def _check_printable(text: str) -> str:
    if not text.isprintable() or {"<", ">"} & set(text):
        raise ValueError(f"{shown(text)}; allowed: characters that can be printed, without < and >")
    return text


Plain = Annotated[str, Field(max_length=10_000), AfterValidator(_check_printable)]  # pages show it unchanged


def omitted(default: Any) -> Any:
    """Field that records and their digests leave out if it has its default value."""
    return Field(default, exclude_if=lambda value: value == default)


class Strict(BaseModel):
    """Base of frozen models that refuse unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=True, ser_json_inf_nan="strings")
