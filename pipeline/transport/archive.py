"""Format of a pack: a gzipped tar; its first member, the manifest, has the digests of the others."""

import gzip
import os
import shutil
import tarfile
import zlib
from io import BytesIO
from pathlib import Path, PurePosixPath
from typing import IO, Annotated, Literal

from pydantic import Field, ValidationError

from dprepro.errors import UserError, reading, shown
from dprepro.fields import Key, Strict
from dprepro.pipeline.files import digest_file, replacing
from dprepro.pipeline.limits import MANIFEST_BYTES, PACK_LEAST, PACK_TIMES
from dprepro.pipeline.params import Settings
from dprepro.pipeline.results import records
from dprepro.pipeline.results.weights import ENDING, RUNS, weights_path

MANIFEST = "manifest.json"
CHUNK = 1 << 20


class PackedRow(Strict):
    """Files of one row in a pack; the row's run has the digests of settings, code and data."""

    files: dict[str, str]  # path -> digest
    weights: bool  # False: weights are left out, to save space


class Manifest(Strict):
    """First member of a pack."""

    schema_version: Literal[2] = 2
    rows: Annotated[dict[Key, PackedRow], Field(min_length=1)]


class _Damage(Exception):
    """A pack is incomplete, or has unexpected contents."""


def write(target: Path, manifest: Manifest) -> None:
    """Write the manifest and its files atomically; equal input gives equal bytes."""
    head = (manifest.model_dump_json(indent=2) + "\n").encode()
    with (
        replacing(target) as file,
        # no name and no time in the header
        gzip.GzipFile("", "wb", fileobj=file, mtime=0) as stream,
        tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        _add(tar, MANIFEST, BytesIO(head), len(head))
        for name in sorted({name for row in manifest.rows.values() for name in row.files}):
            with open(name, "rb") as source:
                _add(tar, name, source, os.fstat(source.fileno()).st_size)


def read(source: Path, staged: Path) -> Manifest:
    """Extract the manifest's files under ``staged`` and compare their digests.

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
                manifest = _unpack(tar, staged)
            # gzip compares its checksum at the end of the stream
            while content.read(CHUNK):
                pass
    except (ValidationError, tarfile.TarError, EOFError, gzip.BadGzipFile, zlib.error, _Damage) as problem:
        first = str(problem.errors()[0]["msg"]) if isinstance(problem, ValidationError) else problem
        raise UserError(f"{source}: not a pack, or damaged: {first}") from problem
    # raised for malformed headers
    except (ValueError, OverflowError, RecursionError) as problem:
        raise UserError(f"{source}: not a pack, or damaged: {shown(str(problem))}") from problem
    return manifest


def _unpack(tar: tarfile.TarFile, staged: Path) -> Manifest:
    """Write the members under ``staged`` and compare each with its digest in the manifest."""
    head = tar.next()
    if head is not None and head.size > MANIFEST_BYTES:
        raise _Damage(f"its first member has {head.size} bytes")
    manifest = Manifest.model_validate_json(_content(tar, head).read())
    for row, packed in manifest.rows.items():
        _check_names(row, packed)
    expected = {name: file for row in manifest.rows.values() for name, file in row.files.items()}
    while member := tar.next():
        if member.name not in expected:
            raise _Damage(f"{shown(member.name)} is not in its manifest, or there twice")
        target = staged / member.name
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("wb") as out:
            shutil.copyfileobj(_content(tar, member), out)
        if digest_file(target) != expected.pop(member.name):
            raise _Damage(f"{member.name} is not what its digest says")
    if expected:
        raise _Damage(f"{min(expected)} is missing")
    return manifest


class _Bounded:
    """Stream with a limit on its size. Reading more than ``most`` bytes is an error."""

    def __init__(self, stream: gzip.GzipFile, most: int):
        self.stream, self.left = stream, most

    def read(self, size: int = -1) -> bytes:
        """Read at most ``size`` bytes; all of the stream if ``size`` is negative."""
        content = self.stream.read(self.left + 1 if size < 0 else min(size, self.left + 1))
        self.left -= len(content)
        if self.left < 0:
            raise _Damage("unpacks to far more than it holds")
        return content


def _add(tar: tarfile.TarFile, name: str, content: IO[bytes], size: int) -> None:
    # A fresh TarInfo carries no owner, time or mode of this machine.
    member = tarfile.TarInfo(name)
    member.size = size
    tar.addfile(member, content)


def _content(tar: tarfile.TarFile, member: tarfile.TarInfo | None) -> IO[bytes]:
    """Bytes of a regular file; links, devices, and sparse files, which may be far larger, are refused."""
    plain = member is not None and member.isreg() and not member.issparse()
    content = tar.extractfile(member) if member is not None and plain else None
    if content is None:
        raise _Damage(f"{shown(member.name)} is not a plain file" if member else "empty")
    return content


def required_files(row: str) -> tuple[Path, ...]:
    """Files of a row that every pack has; weights are optional."""
    return records.run_path(row), records.history_path(row), records.evaluation_path(row)


def _check_names(row: str, packed: PackedRow) -> None:
    """Make sure that a packed row has only its own files, and that no name leaves the row's folder."""
    due = {path.as_posix() for path in required_files(row)}
    allowed = {(PurePosixPath(RUNS.name, row), ENDING), (PurePosixPath(records.SEARCHES), ".json")}
    for name in packed.files.keys() - due:
        path = PurePosixPath(name)
        if (path.parent, path.suffix) not in allowed or str(path) != name:
            raise _Damage(f"{shown(name)} is not a file of row {row!r}")
    if lacking := due - packed.files.keys():
        raise _Damage(f"{min(lacking)} is missing")
    if packed.weights != any(name.endswith(ENDING) for name in packed.files):
        raise _Damage(f"says of row {row!r} that it holds weights where it doesn't, or the other way round")


def pack(settings: Settings, rows: list[str], target: Path, weights: bool = True) -> None:
    """Write the runs, curves and evaluations of ``rows`` to ``target``, and their weights if ``weights``.

    Records of searches over the rows are included, because the rows' ledgers compose them. Ledgers are left
    out, because `adopt` computes them anew.

    Raises:
        UserError: a row has not been trained or evaluated, requested weights are missing, or ``target`` is
            one of the files to pack.
    """
    if target.is_dir():
        raise UserError(f"{target}: is a folder; allowed: the name of a file to write")
    packed = {row: _packed(settings, row, weights) for row in dict.fromkeys(rows)}
    if target.resolve() in (Path(name).resolve() for row in packed.values() for name in row.files):
        raise UserError(f"{target}: is one of the files to pack; allowed: another file")
    write(target, Manifest(rows=packed))


def _packed(settings: Settings, row: str, weights: bool) -> PackedRow:
    settings.row(row)
    run = records.read_run(row)
    if run is None:
        raise UserError(f"{records.run_path(row)}: missing; run `dprepro train {row}`")
    heavy = [weights_path(row, *replica.key) for replica in run.replicas] if weights else []
    searches = map(records.search_path, records.row_searches(row, settings.rows[row].search))
    searched = [path for path in searches if path.exists()]
    if lacking := next((path for path in heavy if not path.exists()), None):
        raise UserError(f"{lacking}: missing; --without-weights packs the row without")
    try:
        files = {path.as_posix(): digest_file(path) for path in (*required_files(row), *searched, *heavy)}
    except FileNotFoundError as problem:
        raise UserError(f"{problem.filename}: missing; run `dprepro evaluate {row}`") from problem
    return PackedRow(files=files, weights=weights)
