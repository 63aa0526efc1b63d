"""Packs: rows' records, and perhaps their weights, in a gzipped tar. Records have the weights' digests."""

import gzip
import os
import re
import tarfile
import zlib
from pathlib import Path
from typing import IO

from dprepro.errors import UserError, reading, shown
from dprepro.fields import KEY
from dprepro.pipeline.files import PACK_LEAST, PACK_TIMES, replacing
from dprepro.pipeline.params import Settings, pick
from dprepro.pipeline.results import records
from dprepro.pipeline.results.weights import ENDING, RUNS, lacking, weights_path

CHUNK = 1 << 20
_KEY = KEY.strip("^$")
RECORD = re.compile(rf"reports/(?:trainings|evaluations)/({_KEY})\.jsonl")
SEARCH = re.compile(rf"reports/searches/({_KEY})\.json")
WEIGHTS = re.compile(rf"{RUNS}/({_KEY})/[^/\\]+\{ENDING}")


class _Damage(Exception):
    """A pack is incomplete, or has unexpected contents."""


def pack(settings: Settings, rows: list[str], target: Path, weights: bool = True) -> None:
    """Write the trainings and accuracies of ``rows`` to ``target``, and their weights if ``weights``.

    Records of searches over the rows are included, because the rows' ledgers compose them. Ledgers are left
    out, because `adopt` computes them anew. Equal input gives equal bytes.

    Raises:
        UserError: a row has not been trained or evaluated, requested weights are missing or damaged, or
            ``target`` is one of the files to pack.
    """
    if target.is_dir():
        raise UserError(f"{target}: is a folder; allowed: the name of a file to write")
    files = sorted({path for row in rows for path in _files(settings, row, weights)})
    if target.resolve() in (path.resolve() for path in files):
        raise UserError(f"{target}: is one of the files to pack; allowed: another file")
    with (
        replacing(target) as file,
        # no name and no time in the header
        gzip.GzipFile("", "wb", fileobj=file, mtime=0) as stream,
        tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for path in files:
            with path.open("rb") as source:
                member = tarfile.TarInfo(path.as_posix())  # without owner, time or mode of this machine
                member.size = os.fstat(source.fileno()).st_size
                tar.addfile(member, source)


def _files(settings: Settings, row: str, weights: bool) -> list[Path]:
    declared, run = pick(settings.rows, row, "row"), records.read_run(row)
    if run is None:
        raise UserError(f"{records.run_path(row)}: missing; run `dprepro train {row}`")
    if not records.evaluation_path(row).exists():
        raise UserError(f"{records.evaluation_path(row)}: missing; run `dprepro evaluate {row}`")
    searches = map(records.search_path, records.row_searches(row, declared.search))
    if weights and (gone := lacking(run, compared=True)):
        path = weights_path(row, *gone[0].key)
        what = "is not what training left" if path.exists() else "missing"
        raise UserError(f"{path}: {what}; --without-weights packs the row without")
    return [
        *(records.run_path(row), records.evaluation_path(row)),
        *(path for path in searches if path.exists()),
        *(weights_path(row, *training.key) for training in run.trainings if weights),
    ]


def unpack(source: Path, settings: Settings, staged: Path) -> list[str]:
    """Extract a pack's files under ``staged`` and return the keys of its rows.

    Raises:
        UserError: the file is not a pack, is damaged, or has a file that doesn't belong to its rows.
    """
    with reading(source):
        file = source.open("rb")
        most = max(PACK_LEAST, PACK_TIMES * source.stat().st_size)
    try:
        with file, gzip.GzipFile(fileobj=file) as stream:
            content = _Bounded(stream, most)
            # as a stream, without seeking
            with tarfile.open(fileobj=content, mode="r|") as tar:  # type: ignore[call-overload]
                _extract(tar, staged)
            # gzip compares its checksum at the end of the stream
            while content.read(CHUNK):
                pass
        return _rows(settings, staged)
    except (tarfile.TarError, EOFError, gzip.BadGzipFile, zlib.error, _Damage) as problem:
        raise UserError(f"{source}: not a pack, or damaged: {problem}") from problem
    # raised for malformed headers
    except (ValueError, OverflowError, RecursionError) as problem:
        raise UserError(f"{source}: not a pack, or damaged: {shown(str(problem))}") from problem


def _extract(tar: tarfile.TarFile, staged: Path) -> None:
    while member := tar.next():
        if not any(kind.fullmatch(member.name) for kind in (RECORD, SEARCH, WEIGHTS)):
            raise _Damage(f"{shown(member.name)} is not a file of a row")
        if not member.isreg() or member.issparse():
            raise _Damage(f"{shown(member.name)} is not a plain file")
        content, target = tar.extractfile(member), staged / member.name
        assert content is not None, "it is a regular file"
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.exists():
            raise _Damage(f"{shown(member.name)} is there twice")
        with target.open("wb") as out:
            while part := content.read(CHUNK):
                out.write(part)


def _rows(settings: Settings, staged: Path) -> list[str]:
    """Rows of the extracted files; a row has trainings and accuracies, and other files only beside them."""
    rows = sorted(path.stem for path in (staged / records.TRAININGS).glob("*"))
    if not rows:
        raise _Damage("it has no row")
    for path in staged.rglob("*"):
        name = path.relative_to(staged).as_posix()
        for kind in (RECORD, WEIGHTS):
            if (found := kind.fullmatch(name)) and found[1] not in rows:
                raise _Damage(f"{shown(name)} is not a file of its rows")
        if found := SEARCH.fullmatch(name):
            search = records.read_search(found[1], staged)
            named = {settings.row(row).search for row in rows}
            if search is None or (search.row not in rows and search.name not in named):
                raise _Damage(f"{shown(name)} is not a search of its rows")
    for row in rows:
        if not records.evaluation_path(row, staged).exists():
            raise _Damage(f"{records.evaluation_path(row)} is missing")
    return rows


class _Bounded:
    """Stream with a limit on its size. Reading more than ``most`` bytes is an error."""

    def __init__(self, stream: IO[bytes] | gzip.GzipFile, most: int):
        self.stream, self.left = stream, most

    def read(self, size: int = -1) -> bytes:
        """Read at most ``size`` bytes; all of the stream if ``size`` is negative."""
        content = self.stream.read(self.left + 1 if size < 0 else min(size, self.left + 1))
        self.left -= len(content)
        if self.left < 0:
            raise _Damage("unpacks to far more than it holds")
        return content
