"""Accountants beside our own bounds, for a Gaussian mechanism: one module each, found by standing here.

A module has ``epsilons(spending, steps, delta, least)``, which yields what its accountant says after
``steps`` steps, where ``least`` is the least epsilon that is proven; it yields nothing where its accountant
has no say. An opinion stands on the ledger beside the bounds, and is never taken for one.
"""

from functools import cache
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from types import ModuleType


@cache
def accountants() -> tuple[ModuleType, ...]:
    """The modules, in alphabetical order."""
    return tuple(import_module(name) for name in names())


def names() -> list[str]:
    """Of the modules."""
    return [f"{__name__}.{path.stem}" for path in sorted(Path(__file__).parent.glob("[a-z]*.py"))]


def library(name: str) -> str:
    """A library that accounts, and its version."""
    return f"{name} {version(name)}"
