"""Sources of the official raw files: their publishers' addresses, or a folder that mirrors them.

A file is identified by size and checksum before any use, so its source can't change a result. File names and
the catalogue's folders only say where to look.
"""

import hashlib
import posixpath
import tarfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

import pooch
from requests import RequestException

from dprepro.errors import UserError, reading
from dprepro.pipeline.data.catalog import OFFICIAL, Archive, Edition, Entry, File
from dprepro.pipeline.files import locked, writing

TIMEOUT = 30.0  # seconds without data before a connection counts as dropped
RETRIES = 3  # of a download from one address


class Unavailable(Exception):
    """A file is not available anywhere; the message lists the attempts."""


def from_publishers(entry: Entry, edition: Edition, downloads: Path, target: Path) -> None:
    """Download the canonical files of ``edition``, or an archive of them, into ``target``.

    ``downloads`` is a folder that keeps downloaded files between commands.

    Raises:
        UserError: no address gave the right bytes; the message has the result of each address.
    """
    if not edition.bases and not edition.archives:
        raise UserError(
            f"{entry.title}: this edition is not published anywhere; give the folder that holds it with "
            f"--mirror DIR, or set raw.{entry.key}.edition: {OFFICIAL} in params.yaml"
        )
    with locked(downloads / ".lock", "another `dprepro fetch` is downloading here; wait for it"):
        try:
            _collect(edition, lambda file, addresses: download(addresses, file, downloads), target)
        except Unavailable as problem:
            raise UserError(
                f"{entry.title}: can't be downloaded: {problem}. "
                "Run it again, or give a folder with the files: --mirror DIR"
            ) from problem


def from_mirror(entry: Entry, edition: Edition, folder: Path, target: Path) -> None:
    """Copy the canonical files of ``edition`` from ``folder``, or from an archive in it, into ``target``.

    Raises:
        UserError: a file is missing, wrong or of another edition; the message names it.
    """
    if not folder.is_dir():
        raise UserError(
            f"{folder}: no such folder; a mirror is a folder that holds the files of {entry.title}"
        )

    def find(file: File, _: Sequence[str]) -> Path:
        faults = []
        for below in entry.folders:  # the likeliest first
            if (path := folder / below / file.name).is_file():
                if (fault := _fault_at(path, file)) is None:
                    return path
                faults.append(f"{path}: not the file of {entry.title}: {fault}")
        raise Unavailable(*faults[:1])

    try:
        _collect(edition, find, target)
    except Unavailable as problem:
        if faults := str(problem):
            raise UserError(
                f"{faults}; editions that raw.{entry.key}.edition in params.yaml may name: "
                f"{', '.join(entry.editions)}"
            ) from None
        missing = next(
            file.name
            for file in edition.files
            if not any((folder / below / file.name).is_file() for below in entry.folders)
        )
        names = " or ".join([missing, *(archive.file.name for archive in edition.archives)])
        places = ", ".join(below or "." for below in entry.folders)
        raise UserError(f"{folder}: lacks {names} of {entry.title}; looked in its {places}") from None


def _collect(edition: Edition, find: Callable[[File, Sequence[str]], Path], target: Path) -> None:
    """Put the canonical files into ``target``, one by one or from an archive.

    ``find`` takes a file and its addresses. It returns the path of a copy, or raises `Unavailable`.

    Raises:
        Unavailable: a file and every archive are unavailable.
        UserError: a file is wrong, or ``target`` can't be written.
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


def download(addresses: Sequence[str], file: File, folder: Path) -> Path:
    """Download ``file`` into ``folder`` from the first address with the right bytes; return its path.

    Raises:
        Unavailable: no address gave the right bytes; the message has the result of each address.
        UserError: the folder can't be written.
    """
    problems = []
    for address in addresses:
        downloader = pooch.HTTPDownloader(timeout=TIMEOUT, headers={"User-Agent": "dprepro"})
        place = {"registry": {file.name: file.checksum}, "urls": {file.name: address}}
        with writing(folder):
            try:
                source = pooch.create(folder, "", retry_if_failed=RETRIES, **place)
                return Path(source.fetch(file.name, downloader=downloader))
            except (RequestException, ValueError) as problem:
                problems.append(f"{address}: {problem}")
    raise Unavailable("; ".join(problems))


def extract(archive: Path, described: Archive, files: Sequence[File], target: Path) -> None:
    """Extract exactly ``files`` from an archive into the folder ``target`` and check them.

    Members are found by their names in the catalogue, and written to ``target`` under the names of ``files``.
    So paths and links in the archive and its other members have no effect.

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
    """Write content from ``source`` after comparing it with ``expected``."""
    if wrong := _fault(content, expected):
        raise UserError(f"{source}: wrong file: {wrong}")
    with writing(target):
        target.write_bytes(content)


def _fault_at(path: Path, expected: File) -> str | None:
    """Difference of the file at ``path`` from ``expected``; None if there is none."""
    with reading(path):
        if (size := path.stat().st_size) != expected.size:
            return f"{size} bytes instead of {expected.size}"
        return _fault(path.read_bytes(), expected)


def _fault(content: bytes, expected: File) -> str | None:
    algorithm = expected.checksum.partition(":")[0]
    actual = f"{algorithm}:{hashlib.new(algorithm, content).hexdigest()}"
    return None if actual == expected.checksum else f"{actual} instead of {expected.checksum}"
