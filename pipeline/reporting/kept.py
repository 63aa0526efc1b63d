"""What was drawn before is not drawn again while all that it is drawn from is the same.

Drawings lie in an ignored folder, each by a digest of what it is drawn from: records, settings, the paper's
file, and all code that may have a part in it. Whatever of these moves, there is no drawing of that digest.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.metadata import version
from pathlib import Path

from pipeline.extensions import BUILT_IN, extensions
from pipeline.files import Damaged, digest_file, digest_files, digest_json, read_sealed, write_sealed
from pipeline.reporting.results import PaperResult, TableResult

FOLDER = Path(".dprepro/drawn")
LIBRARIES = ("jinja2", "matplotlib", "numpy", "pandas", "scipy")  # that numbers, figures and pages come from
Files = Mapping[str, str]  # text by path


class Kept:
    """Drawings of a laboratory, each kept from one report to the next while it would be the same."""

    def __init__(self, root: Path) -> None:
        """``root`` is the folder of params.yaml."""
        self.folder, self.code = root / FOLDER, _code()
        self.used: set[str] = set()

    def files(self, source: str, draw: Callable[[], Iterator[tuple[str, str]]]) -> Files:
        """What ``draw`` gives, or gave before from the same ``source``: `of_table` or `of_page`."""
        path = self.folder / f"{source.removeprefix('sha256:')}.json"
        self.used.add(path.name)
        try:
            files: Files = json.loads(read_sealed(path))
        except (OSError, Damaged):
            files = dict(draw())
            write_sealed(path, json.dumps(files).encode())
        return files

    def clear(self) -> None:
        """Leave no drawing that the report just made has no use for."""
        for path in self.folder.glob("*.json"):
            if path.name not in self.used:
                path.unlink(missing_ok=True)

    def of_table(self, result: TableResult) -> str:
        """Digest of everything that a table's files are drawn from: all that was gathered, and curves."""
        curves = [digest_file(row.history) for row in result.rows if row.history]
        return digest_json([self.code, repr(result), curves])


def of_page(result: PaperResult, tables: Iterable[str], papers: int) -> str:
    """Digest of everything that a paper's page is drawn from: its `Kept.of_table`s, one of so many papers."""
    return digest_json([result.key, repr(result.paper), papers, *tables])


def _code() -> str:
    """Digest of all packages that bring claims, figures or methods, this one first, and of the libraries."""
    brought = [extension for kind in BUILT_IN for extension in extensions(kind).values()]
    packages = {extension.path.parents[extension.module.count(".") - 1] for extension in brought}
    return digest_json([[_bytes_of(package) for package in sorted(packages)], *map(version, LIBRARIES)])


def _bytes_of(package: Path) -> str:
    files = (path for path in package.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return digest_files(package, files)
