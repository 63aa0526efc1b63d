"""Extensions: methods, models, accountants and data sets, found by their packages.

This project has a package for each kind but data sets. A laboratory's Python packages may have a sub-package
for each kind. `code` in params.yaml names the packages, which are installed or in the laboratory's folder.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module, invalidate_caches
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from dprepro.errors import UserError

if TYPE_CHECKING:
    from functools import _lru_cache_wrapper

Kind = Literal["accountants", "data_sets", "methods", "models"]
BUILT_IN: dict[Kind, str] = {
    "methods": "dprepro.pipeline.methods",
    "models": "dprepro.pipeline.models",
}
FILES = "[a-z]*.py"
ROOMS = "*/settings.py"  # a method is a folder with settings

# packages named by `code`, in order, each with the folder of its params.yaml
_laboratory: dict[str, Path] = {}
_caches: list["_lru_cache_wrapper[Any]"] = []
T = TypeVar("T")


@dataclass(frozen=True)
class Extension:
    """Python module that adds a method, a model, an accountant or another `Kind` of thing."""

    module: str  # its dotted name
    path: Path

    def load(self) -> ModuleType:
        """Import the module and return it."""
        return import_module(self.module)


def cached(function: Callable[..., T]) -> "_lru_cache_wrapper[T]":
    """`functools.cache` for results that depend on the extensions: `use` clears it when it adds packages."""
    cached_function = cache(function)
    _caches.append(cached_function)
    return cached_function


def use(packages: Sequence[str], folder: Path) -> None:
    """Register the extensions of a laboratory's packages.

    Args:
        packages: names under `code` in the laboratory's params.yaml.
        folder: folder of params.yaml, searched before installed packages.

    Raises:
        UserError: a package doesn't exist, or an installed package has the same name.
    """
    directory = str(folder.resolve())
    if packages and directory not in sys.path:
        sys.path.insert(0, directory)
        invalidate_caches()
    for name in packages:
        locations, local = _locations(name), folder / name
        if not locations:
            raise UserError(
                f"{folder / 'params.yaml'}: code: no package {name!r}; allowed: a folder with Python files "
                "beside params.yaml, or an installed package"
            )
        if local.is_dir() and local.resolve() not in locations:
            raise UserError(
                f"{folder / 'params.yaml'}: code: {name!r} is {locations[0]} too; allowed: another name"
            )
        if name not in _laboratory:
            _laboratory[name] = folder
            for cached_function in _caches:
                cached_function.cache_clear()


def in_use() -> dict[str, Path]:
    """Registered packages and the folders of their params.yaml, to register them in a new process."""
    return dict(_laboratory)


@cached
def extensions(kind: Kind) -> dict[str, Extension]:
    """Extensions of a kind by name, in alphabetical order.

    Raises:
        UserError: two extensions have the same name.
    """
    modules: dict[str, Extension] = {}
    for package, folder in _folders(kind):
        for path in folder.glob(ROOMS if kind == "methods" else FILES):
            parts = path.relative_to(folder).with_suffix("").parts
            if (other := modules.get(parts[0])) is not None:
                raise UserError(f"{path}: {other.path} has that name too; allowed: another name")
            modules[parts[0]] = Extension(".".join((package, *parts)), path)
    return dict(sorted(modules.items()))


def _folders(kind: Kind) -> list[tuple[str, Path]]:
    """Pairs of a package of this kind and its folder."""
    packages = [BUILT_IN[kind]] if kind in BUILT_IN else []
    packages += [f"{name}.{kind}" for name in _laboratory]
    return [(package, folder) for package in packages for folder in _locations(package)]


def _locations(package: str) -> list[Path]:
    """Folders of a package: none if the package doesn't exist, maybe several if it lacks `__init__.py`."""
    spec = find_spec(package)
    folders = () if spec is None else spec.submodule_search_locations or ()
    return list(dict.fromkeys(Path(folder).resolve() for folder in folders))  # without duplicates
