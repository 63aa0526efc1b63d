"""Further accountants for a Gaussian mechanism: two of the library's, and those of a laboratory's packages.

A module defines ``epsilons(spending, steps, delta, least)``. This function yields the accountant's results
after ``steps`` steps, or nothing if the accountant doesn't apply; ``least`` is the smallest proven epsilon.
The ledger shows these results next to the bounds and never uses them as bounds. ``SLOW_IMPORT`` of a module
has the names of its accountants if their library takes seconds to import; `dprepro epsilon` leaves them out.
"""

from types import ModuleType

from dprepro.accountants import opacus, rdp
from dprepro.pipeline.extensions import cached, extensions


def fast_accountants() -> tuple[ModuleType, ...]:
    """Accountants that need no library with a slow import."""
    return tuple(accountant for accountant in accountants() if not getattr(accountant, "SLOW_IMPORT", ()))


def slow_names() -> set[str]:
    """Names of the accountants that `fast_accountants` leaves out, without the library's version."""
    return {name for accountant in accountants() for name in getattr(accountant, "SLOW_IMPORT", ())}


@cached
def accountants() -> tuple[ModuleType, ...]:
    """Accountant modules; those of laboratories are in alphabetical order."""
    return rdp, opacus, *(accountant.load() for accountant in extensions("accountants").values())
