"""Types of fields in YAML and JSON files, and their strict, frozen base class."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

KEY = r"^[a-z0-9]+(-[a-z0-9]+)*$"
Key = Annotated[str, Field(pattern=KEY)]
Count = Annotated[int, Field(ge=1, le=10**12, strict=True)]  # larger ones can't be computed
# strict numbers are neither booleans nor texts
Finite = Annotated[float, Field(allow_inf_nan=False, strict=True)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False, strict=True)]
Passes = Annotated[Positive, Field(le=1e12)]  # over the examples
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False, strict=True)]
Share = Annotated[float, Field(ge=0, lt=1, strict=True)]


def omitted(default: Any) -> Any:
    """Field that records and their digests leave out if it has its default value."""
    return Field(default, exclude_if=lambda value: value == default)


class Strict(BaseModel):
    """Base of frozen models that refuse unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=True, ser_json_inf_nan="strings")
