"""What was drawn before is not drawn again while all that it is drawn from is the same.

Drawings lie in an ignored folder, each by a digest of what it is drawn from: records, settings, the paper's
file, and all code that may have a part in it. Whatever of these moves, there is no drawing of that digest.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.metadata import version
from pathlib import Path

from pipeline.extensions import BUILT_IN, extensions
from pipeline.files import Damaged, digest_files, digest_json, read_sealed, write_sealed
from pipeline.params import PAPERS, Settings
from pipeline.reporting.cells import plan_of
from pipeline.reporting.results import PaperResult, RowResult, TableResult
from pipeline.results import records

FOLDER = Path(".dprepro/drawn")
LIBRARIES = ("jinja2", "matplotlib", "numpy", "pandas", "scipy")  # that numbers, figures and pages come from
RECORDS = (
    records.run_path,
    records.evaluation_path,
    records.ledger_path,
    records.audit_path,
    records.history_path,
)
Files = Mapping[str, str]  # text by path


class Kept:
    """Drawings of a laboratory, each kept from one report to the next while it would be the same."""

    def __init__(self, settings: Settings, root: Path) -> None:
        """``root`` is the folder of params.yaml."""
        self.settings, self.root, self.code = settings, root, _code()
        self.used: set[str] = set()

    def files(self, source: str, draw: Callable[[], Iterator[tuple[str, str]]]) -> Files:
        """What ``draw`` gives, or gave before from the same ``source``: `of_table` or `of_page`."""
        path = self.root / FOLDER / f"{source.removeprefix('sha256:')}.json"
        self.used.add(path.name)
        try:
            files: Files = json.loads(read_sealed(path))
        except (OSError, Damaged):
            files = dict(draw())
            write_sealed(path, json.dumps(files).encode())
        return files

    def clear(self) -> None:
        """Leave no drawing that the report just made has no use for."""
        for path in (self.root / FOLDER).glob("*.json"):
            if path.name not in self.used:
                path.unlink(missing_ok=True)

    def of_table(self, result: TableResult) -> str:
        """Digest of everything that a table's files are drawn from."""
        shown = [result.name, result.levels, [line.label for line in result.lines], result.converged_above]
        rows = [self._row(row) for row in result.rows]
        kept = digest_files(self.root, self._records(result))
        return digest_json([self.code, result.table.model_dump(mode="json"), shown, rows, kept])

    def of_page(self, result: PaperResult, tables: Iterable[str], papers: int) -> str:
        """Digest of everything that a paper's page is drawn from: its `of_table`s, one of so many papers."""
        paper = digest_files(self.root, (self.root / PAPERS).glob(f"{result.key}.yaml"))
        return digest_json([result.key, paper, papers, *tables])

    def _row(self, row: RowResult) -> list[object]:
        declared = row.declared.model_dump(mode="json")
        told = (row.key, row.variant, row.marks, row.gpu_hours, row.budget, plan_of(row.key, self.settings))
        return [declared, repr(told)]

    def _records(self, result: TableResult) -> Iterable[Path]:
        paths = {place(row.key, self.root) for row in result.rows for place in RECORDS}
        paths |= {records.search_path(row.searched, self.root) for row in result.rows if row.searched}
        return filter(Path.exists, paths)


def _code() -> str:
    """Digest of all packages that bring claims, figures or methods, this one first, and of the libraries."""
    brought = [extension for kind in BUILT_IN for extension in extensions(kind).values()]
    packages = {extension.path.parents[extension.module.count(".") - 1] for extension in brought}
    return digest_json([[_bytes_of(package) for package in sorted(packages)], *map(version, LIBRARIES)])


def _bytes_of(package: Path) -> str:
    files = (path for path in package.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return digest_files(package, files)
