"""Bytes on their way into the raw folder: every file is checked before anything may use it."""

import hashlib
import posixpath
import tarfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

from pipeline.data.catalog import Archive, File
from pipeline.errors import UserError, writing

CHUNK = 1 << 20
_CORRUPT = (tarfile.TarError, EOFError, zlib.error, OSError)


def fault(path: Path, expected: File) -> str | None:
    """What is wrong with ``path`` as a copy of ``expected``; None when nothing is.

    Raises:
        UserError: it can't be read.
    """
    algorithm = expected.checksum.partition(":")[0]
    try:
        size = path.stat().st_size
        if size != expected.size:
            return f"{size} bytes instead of {expected.size}"
        with path.open("rb") as stream:
            actual = f"{algorithm}:{hashlib.file_digest(stream, algorithm).hexdigest()}"
    except OSError as problem:
        raise UserError(f"{path}: can't be read: {problem.strerror}") from problem
    return None if actual == expected.checksum else f"{actual} instead of {expected.checksum}"


def copy(source: Path, target: Path, expected: File) -> None:
    """Copy a file, then check the copy.

    Raises:
        UserError: ``source`` can't be read or is not ``expected``, or ``target`` can't be written.
    """
    try:
        stream = source.open("rb")
    except OSError as problem:
        raise UserError(f"{source}: can't be read: {problem.strerror}") from problem
    with stream:
        _write(stream, source, target)
    if wrong := fault(target, expected):
        raise UserError(f"{source}: wrong file: {wrong}")


def extract(archive: Path, described: Archive, files: Sequence[File], target: Path) -> None:
    """Take exactly ``files`` out of an archive into the folder ``target`` and check them.

    Members are found by their catalogued names and written under our own, so no path in the archive, no link
    and no other member is ever followed.

    Raises:
        UserError: the archive is corrupt or lacks a file, or ``target`` can't be written.
    """
    wanted = {f"{described.folder}/{file.name}": file for file in files}
    try:
        with tarfile.open(archive) as tar:
            for member in tar:
                name = posixpath.normpath(member.name)
                if name in wanted and member.isfile() and (stream := tar.extractfile(member)):
                    file = wanted.pop(name)
                    _write(stream, archive, target / file.name)
                    if wrong := fault(target / file.name, file):
                        raise UserError(f"{archive}: {name}: wrong file: {wrong}")
    except _CORRUPT as problem:
        raise UserError(f"{archive}: truncated or corrupt: {problem}") from problem
    if wanted:
        raise UserError(f"{archive}: lacks {', '.join(wanted)}")


def _write(stream: IO[bytes], source: Path, target: Path) -> None:
    """Pour ``stream`` into ``target``; the error names the side that failed."""
    with writing(target), target.open("wb") as file:
        file.writelines(_chunks(stream, source))


def _chunks(stream: IO[bytes], source: Path) -> Iterator[bytes]:
    try:
        while chunk := stream.read(CHUNK):
            yield chunk
    except _CORRUPT as problem:
        raise UserError(f"{source}: truncated or corrupt: {problem}") from problem
