"""Kinds of claim tests: one module each, here or in another package that `pipeline.extensions` finds.

A module's class declares the fields of a test in a paper's file, and judges it. The class's field ``kind``
has the name of the kind.
"""

from functools import reduce
from operator import or_
from typing import Annotated, Any

from pydantic import Field, PlainValidator, TypeAdapter

from dprepro.pipeline.extensions import cached, extensions
from dprepro.pipeline.reporting.judging.claim_test import ClaimTest


@cached
def _any_kind() -> TypeAdapter[ClaimTest]:
    kinds = [
        value
        for extension in extensions("claims").values()
        for value in vars(extension.load()).values()
        if isinstance(value, type)
        and issubclass(value, ClaimTest)
        and value.__module__ == extension.module
        and "kind" in value.model_fields
    ]
    any_kind: Any = Annotated[reduce(or_, kinds), Field(discriminator="kind")]
    return TypeAdapter(any_kind)


def _test(value: Any) -> ClaimTest:
    return _any_kind().validate_python(value)


Test = Annotated[ClaimTest, PlainValidator(_test)]
