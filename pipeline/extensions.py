"""Methods, models, accountants, claims, figures and data sets, and the package that each comes from.

This project has a folder for each kind. The Python packages that `code` of a laboratory's params.yaml names
may have one too: a folder beside params.yaml, or an installed package.
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

from pipeline.errors import UserError

if TYPE_CHECKING:
    from functools import _lru_cache_wrapper

Kind = Literal["accountants", "claims", "data_sets", "figures", "methods", "models"]
BUILT_IN: dict[Kind, str] = {
    "accountants": "pipeline.ledgers.accountants",
    "claims": "pipeline.reporting.claims",
    "figures": "pipeline.reporting.figures",
    "methods": "pipeline.methods",
    "models": "pipeline.models",
}
FILES = "[a-z]*.py"
ROOMS = "*/settings.py"  # a method is a folder, known by its settings

_laboratory: dict[str, Path] = {}  # packages that `code` named, in that order, and beside which params.yaml
_caches: list["_lru_cache_wrapper[Any]"] = []
T = TypeVar("T")


@dataclass(frozen=True)
class Extension:
    """A module that brings something."""

    module: str  # its dotted name
    path: Path

    def load(self) -> ModuleType:
        """Import the module and return it."""
        return import_module(self.module)


def cached(function: Callable[..., T]) -> "_lru_cache_wrapper[T]":
    """`functools.cache` for what follows from the extensions there are: forgotten when `use` adds some."""
    cached_function = cache(function)
    _caches.append(cached_function)
    return cached_function


def use(packages: Sequence[str], folder: Path) -> None:
    """Take what a laboratory's packages bring.

    Args:
        packages: `code` of its params.yaml.
        folder: that of params.yaml, in which they are looked for before they are elsewhere.

    Raises:
        UserError: there is no such package, or another one of its name was used before.
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
    """The laboratory's packages and the folder of each, for a process that begins with none of them."""
    return dict(_laboratory)


@cached
def extensions(kind: Kind) -> dict[str, Extension]:
    """By their names, in alphabetical order: modules, and of methods their rooms' settings.

    Raises:
        UserError: two have the same name.
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
    """Each package of this kind, and where its files lie."""
    packages = [BUILT_IN[kind]] if kind in BUILT_IN else []
    packages += [f"{name}.{kind}" for name in _laboratory]
    return [(package, folder) for package in packages for folder in _locations(package)]


def _locations(package: str) -> list[Path]:
    """Its folders: none of what is no package, and several of one without `__init__.py`."""
    spec = find_spec(package)
    folders = () if spec is None else spec.submodule_search_locations or ()
    return list(dict.fromkeys(Path(folder).resolve() for folder in folders))  # one may be on two paths
