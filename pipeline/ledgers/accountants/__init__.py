"""Accountants beside our own bounds, for a Gaussian mechanism: one module each, found by standing here or
where `pipeline.extensions` looks.

A module has ``epsilons(spending, steps, delta, least)``, which yields what its accountant says after
``steps`` steps, where ``least`` is the least epsilon that is proven; it yields nothing where its accountant
has no say. An opinion stands on the ledger beside the bounds, and is never taken for one.
"""

from importlib.metadata import version
from types import ModuleType

from pipeline.extensions import cached, extensions


@cached
def accountants() -> tuple[ModuleType, ...]:
    """The modules, in alphabetical order."""
    return tuple(accountant.load() for accountant in extensions("accountants").values())


def library(name: str) -> str:
    """A library that accounts, and its version."""
    return f"{name} {version(name)}"
