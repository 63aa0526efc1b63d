"""The file a pack is: a gzipped tar whose first member says what the others must be."""

import gzip
import os
import shutil
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path, PurePosixPath
from typing import IO, Literal

from pydantic import ValidationError

from pipeline.errors import UserError, writing
from pipeline.fields import Key, Strict
from pipeline.files import digest_file
from pipeline.results import records

RUNS = Path("runs")
MANIFEST = "manifest.json"


class PackedRow(Strict):
    """What a pack says of one row; its run has the digests of settings, code and data."""

    files: dict[str, str]  # path -> digest
    weights: bool  # False: left out, to save room


class Manifest(Strict):
    """First member of a pack."""

    schema_version: Literal[2] = 2
    rows: dict[Key, PackedRow]


class _Damage(Exception):
    """A pack that isn't whole, or tries to be more than a pack."""


def write(target: Path, manifest: Manifest) -> None:
    """Write the manifest and the files it lists, atomically; the same input gives the same bytes."""
    head = (manifest.model_dump_json(indent=2) + "\n").encode()
    with (
        _replacing(target) as file,
        # without a name and a time in its header
        gzip.GzipFile("", "wb", fileobj=file, mtime=0) as stream,
        tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        _add(tar, MANIFEST, BytesIO(head), len(head))
        for name in sorted(name for row in manifest.rows.values() for name in row.files):
            with open(name, "rb") as source:
                _add(tar, name, source, os.fstat(source.fileno()).st_size)


def read(source: Path, staged: Path) -> Manifest:
    """Extract what the manifest lists under ``staged``, each file by its digest.

    Raises:
        UserError: the file is not a pack, is damaged, or holds anything that is not a row's own.
    """
    try:
        file = source.open("rb")
    except OSError as problem:
        raise UserError(f"{source}: can't be read: {problem.strerror}") from problem
    try:
        with file, tarfile.open(fileobj=file, mode="r:gz") as tar:
            manifest = Manifest.model_validate_json(_content(tar, tar.next()).read())
            expected = {name: file for row in manifest.rows.values() for name, file in row.files.items()}
            for row, packed in manifest.rows.items():
                _check_names(row, packed)
            while member := tar.next():
                if member.name not in expected:
                    raise _Damage(f"{member.name!r} is not in its manifest, or there twice")
                target = staged / member.name
                target.parent.mkdir(parents=True, exist_ok=True)
                with target.open("wb") as out:
                    shutil.copyfileobj(_content(tar, member), out)
                if digest_file(target) != expected.pop(member.name):
                    raise _Damage(f"{member.name} is not what its digest says")
        if expected:
            raise _Damage(f"{min(expected)} is missing")
    except (ValidationError, tarfile.TarError, EOFError, gzip.BadGzipFile, zlib.error, _Damage) as problem:
        first = str(problem.errors()[0]["msg"]) if isinstance(problem, ValidationError) else problem
        raise UserError(f"{source}: not a pack, or damaged: {first}") from problem
    return manifest


def _add(tar: tarfile.TarFile, name: str, content: IO[bytes], size: int) -> None:
    # A fresh TarInfo carries no owner, time or mode of this machine.
    member = tarfile.TarInfo(name)
    member.size = size
    tar.addfile(member, content)


@contextmanager
def _replacing(target: Path) -> Iterator[IO[bytes]]:
    """A file that becomes ``target`` once it is whole."""
    partial = target.with_name(f".{target.name}.partial")
    with writing(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            with partial.open("wb") as file:
                yield file
            partial.replace(target)
        finally:
            partial.unlink(missing_ok=True)


def _content(tar: tarfile.TarFile, member: tarfile.TarInfo | None) -> IO[bytes]:
    """Bytes of a regular file; links and devices are refused."""
    content = tar.extractfile(member) if member is not None and member.isreg() else None
    if content is None:
        raise _Damage(f"{member.name!r} is not a plain file" if member else "empty")
    return content


def _check_names(row: str, packed: PackedRow) -> None:
    """Only a row's own files, under names that can't lead out of their folder."""
    own = {path(row).as_posix() for path in (records.run_path, records.history_path, records.evaluation_path)}
    for name in packed.files.keys() - own:
        path = PurePosixPath(name)
        if path.parent != PurePosixPath(RUNS.name, row) or path.suffix != ".pt" or str(path) != name:
            raise _Damage(f"{name!r} is not a file of row {row!r}")
    if lacking := own - packed.files.keys():
        raise _Damage(f"{min(lacking)} is missing")
    if packed.weights != any(name.endswith(".pt") for name in packed.files):
        raise _Damage(f"says of row {row!r} that it holds weights where it doesn't, or the other way round")
