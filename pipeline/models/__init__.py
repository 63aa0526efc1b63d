"""Architectures: one file a model, each with a `build` function.

Another package adds its own by an entry point of the group `dprepro.models`, which names one of its packages:
a file there is a model as a file here is. Where names are the same, the one here counts.
"""

from importlib.metadata import entry_points
from importlib.util import find_spec

for _added in entry_points(group="dprepro.models"):
    _spec = find_spec(_added.value)
    if _spec is None or not _spec.submodule_search_locations:
        raise ImportError(f"entry point {_added.name!r} of dprepro.models: {_added.value!r} is no package")
    __path__.extend(_spec.submodule_search_locations)
