"""Accountants beside our own bounds, for a Gaussian mechanism: one module each, found by standing here or
where `pipeline.extensions` looks.

A module has ``epsilons(spending, steps, delta, least)``, which yields what its accountant says after
``steps`` steps, where ``least`` is the least epsilon that is proven; it yields nothing where its accountant
has no say. An opinion stands on the ledger beside the bounds, and is never taken for one. A module with
``SLOW_IMPORT = True`` needs a library that takes seconds to import, and `dprepro epsilon` leaves it out.
"""

from importlib.metadata import version
from types import ModuleType

from pipeline.extensions import cached, extensions


def fast_accountants() -> tuple[ModuleType, ...]:
    """Accountants that need no library with a slow import."""
    return tuple(accountant for accountant in accountants() if not getattr(accountant, "SLOW_IMPORT", False))


@cached
def accountants() -> tuple[ModuleType, ...]:
    """The modules, in alphabetical order."""
    return tuple(accountant.load() for accountant in extensions("accountants").values())


def library(name: str) -> str:
    """A library that accounts, and its version."""
    return f"{name} {version(name)}"
