"""Kinds of claims, one module each: what a paper's file says for it, and how it is judged.

A module is found by standing here, and its kind by the name that its class gives to ``kind``.
"""

from functools import reduce
from importlib import import_module
from operator import or_
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from pipeline.reporting.judging.claim_test import ClaimTest


def _kinds() -> list[type[ClaimTest]]:
    modules = [import_module(f"{__name__}.{module.name}") for module in iter_modules(__path__)]
    return [
        value
        for module in modules
        for value in vars(module).values()
        if isinstance(value, type)
        and issubclass(value, ClaimTest)
        and value.__module__ == module.__name__
        and "kind" in value.model_fields
    ]


if TYPE_CHECKING:
    Test = ClaimTest
else:
    Test = Annotated[reduce(or_, _kinds()), Field(discriminator="kind")]
