"""Bytes on their way into the raw folder: every file is checked before anything may use it."""

import hashlib
import posixpath
import tarfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

from pipeline.data.catalog import Archive, Edition, File
from pipeline.errors import UserError, reading, writing


class Unavailable(Exception):
    """A file is nowhere to be had; the text says what was tried."""


def collect(edition: Edition, find: Callable[[File, Sequence[str]], Path], target: Path) -> None:
    """Put the canonical files of ``edition`` into ``target``, one by one or out of an archive.

    ``find`` gives a path at which a file lies, from the addresses that it has, or raises `Unavailable`.

    Raises:
        Unavailable: some file, and every archive.
        UserError: what was found is something else, or ``target`` can't be written.
    """
    problems = []
    try:
        for file in edition.files:
            source = find(file, [base + file.name for base in edition.bases])
            with reading(source):
                content = source.read_bytes()
            _put(content, str(source), target / file.name, file)
        return
    except Unavailable as problem:
        problems.append(str(problem))
    for archive in edition.archives:
        try:
            path = find(archive.file, archive.addresses)
        except Unavailable as problem:
            problems.append(str(problem))
        else:
            extract(path, archive, edition.files, target)
            return
    raise Unavailable("; ".join(filter(None, problems)))


def fault(path: Path, expected: File) -> str | None:
    """What is wrong with ``path`` as a copy of ``expected``; None when nothing is.

    Raises:
        UserError: it can't be read.
    """
    with reading(path):
        if (size := path.stat().st_size) != expected.size:
            return f"{size} bytes instead of {expected.size}"
        return _fault(path.read_bytes(), expected)


def _fault(content: bytes, expected: File) -> str | None:
    algorithm = expected.checksum.partition(":")[0]
    actual = f"{algorithm}:{hashlib.new(algorithm, content).hexdigest()}"
    return None if actual == expected.checksum else f"{actual} instead of {expected.checksum}"


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
                    _put(stream.read(file.size + 1), f"{archive}: {name}", target / file.name, file)
    except (tarfile.TarError, EOFError, zlib.error, OSError) as problem:
        raise UserError(f"{archive}: truncated or corrupt: {problem}") from problem
    if wanted:
        raise UserError(f"{archive}: lacks {', '.join(wanted)}")


def _put(content: bytes, source: str, target: Path, expected: File) -> None:
    """Write what was read from ``source``, which must be ``expected``."""
    if wrong := _fault(content, expected):
        raise UserError(f"{source}: wrong file: {wrong}")
    with writing(target):
        target.write_bytes(content)
