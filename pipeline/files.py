"""Reading and writing files so that nobody ever sees half of one, and digests of what they hold.

Whatever is written is written beside its place, brought to the disk, and renamed; then its folder is brought
to the disk. The name beside tells which process writes there. What a killed one left is cleared by the next
command (`clear_leftovers`), and ignored by git and DVC.
"""

import hashlib
import json
import os
import re
import shutil
import socket
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from pipeline.errors import UserError

# What is being written, and a folder that has just been replaced: '.NAME.HOST-PID.partial' and '.replaced'. A
# database that is being written has a journal of its own beside it.
PARTIAL, REPLACED = "partial", "replaced"
_BESIDE = re.compile(
    rf"\.(?P<name>.+)\.(?P<host>\w+)-(?P<pid>\d+)\.(?P<kind>{PARTIAL}|{REPLACED})(-journal|-wal|-shm)?"
)
# Where commands write, from the folder of params.yaml; `True`: also in the folders below. Folders of data are
# written as a whole, and what lies in them, or beside them, may be millions of a person's own files.
_PLACES = {
    **{".": False, "reports": True, "runs": True, ".dprepro": True},
    **{"data": False, "data/raw": False, "data/prepared": False},
}
_DAY = 24 * 3600.0  # seconds after which another machine's leftovers count as left


class Damaged(Exception):
    """A file that is not what was written there, or written down of it."""


def beside(path: Path, kind: str = PARTIAL) -> Path:
    """The name beside ``path`` under which this process writes."""
    return path.with_name(f".{path.name}.{_host()}-{os.getpid()}.{kind}")


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn a failed write under ``path`` (full disk, read-only folder) into one clear line.

    What is written beside its place is told by that place.
    """
    try:
        yield
    except OSError as problem:
        parts = Path(problem.filename or path).parts
        matches = {part: match["name"] for part in parts if (match := _BESIDE.fullmatch(part))}
        location = Path(*(matches.get(part, part) for part in parts))
        raise UserError(f"{location}: can't be written: {problem.strerror or problem}") from problem


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Open a temporary file that replaces ``path`` when it is complete and on the disk.

    Raises:
        UserError: the disk is full or the folder can't be written. After any error ``path`` is as it was.
    """
    if path.is_dir():
        raise UserError(f"{path}: is a folder; allowed: a file")
    temporary = beside(path)
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with temporary.open("wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        sync_folder(path.parent)


@contextmanager
def replacing_folder(folder: Path) -> Iterator[Path]:
    """Give an empty folder to fill with files; filled without an error it takes the place of ``folder``.

    The one before is there until the new one is whole; a kill between the two renames leaves it beside, and
    `clear_leftovers` puts it back.

    Raises:
        UserError: the folder can't be written. After any error ``folder`` is as it was.
    """
    building, replaced = beside(folder), beside(folder, REPLACED)
    # it may lie where `clear_leftovers` does not look
    for match in filter(None, (_BESIDE.fullmatch(path.name) for path in folder.parent.glob(".*"))):
        if match["name"] == folder.name:
            _clear(folder.parent, match)
    with writing(building):
        shutil.rmtree(building, ignore_errors=True)
        building.mkdir(parents=True)
    try:
        yield building
        with writing(folder):
            for path in building.iterdir():
                _sync(path)
            sync_folder(building)
            if folder.exists():
                folder.rename(replaced)
            building.rename(folder)
            sync_folder(folder.parent)
    finally:
        if replaced.exists() and not folder.exists():
            replaced.rename(folder)
        for leftover in (building, replaced):
            shutil.rmtree(leftover, ignore_errors=True)


@contextmanager
def locked(lock: Path, busy: str | None = None) -> Iterator[None]:
    """Hold a lock file, which is made with its folder where it isn't there, while the block runs.

    Args:
        lock: the file; a process that ends lets go of it, however it ends.
        busy: what to say where another process holds it; None: wait for that one.

    Raises:
        UserError: another process holds it, or the folder can't be written.
    """
    from filelock import FileLock, Timeout

    with writing(lock.parent):
        lock.parent.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(lock).acquire(blocking=busy is None):
            yield
    except Timeout as problem:
        raise UserError(f"{lock}: {busy}") from problem


def is_temporary(path: Path) -> bool:
    """Whether a path's name is one under which a process writes beside a file's place."""
    return _BESIDE.fullmatch(path.name) is not None


def clear_leftovers() -> None:
    """Clear what killed processes left beside the places where they wrote; put back what they had replaced.

    What others are writing stays: of this machine it is known whether they live, of another one it is what is
    no older than a day.
    """
    for root, recursive in _PLACES.items():
        for folder, names, files in os.walk(root):
            for match in filter(None, map(_BESIDE.fullmatch, [*names, *files])):
                with suppress(OSError):
                    _clear(Path(folder), match)
            names[:] = [name for name in names if recursive and not _BESIDE.fullmatch(name)]


def _clear(folder: Path, match: re.Match[str]) -> None:
    leftover, original = folder / match[0], folder / match["name"]
    if not _is_abandoned(match, leftover):
        return
    if match["kind"] == REPLACED and not original.exists():
        leftover.rename(original)
    elif leftover.is_dir():
        shutil.rmtree(leftover)
    else:
        leftover.unlink()


def _is_abandoned(match: re.Match[str], leftover: Path) -> bool:
    if match["host"] != _host():
        return time.time() - leftover.lstat().st_mtime > _DAY
    if int(match["pid"]) == os.getpid():
        return True  # a process before this one had its number
    try:
        os.kill(int(match["pid"]), 0)
    except (ProcessLookupError, OverflowError):
        return True
    except PermissionError:
        return False
    return False


def _host() -> str:
    """This machine's name, as far as it fits into a file's."""
    return re.sub(r"\W", "_", socket.gethostname())[:32] or "host"


def sync_folder(folder: Path) -> None:
    """Bring a folder's names to the disk, where the system has a way to."""
    with suppress(OSError):
        _sync(folder)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def place(source: Path, path: Path) -> None:
    """Move a file that was written elsewhere on the same disk to its place, at once.

    Raises:
        OSError: it can't be moved.
    """
    _sync(source)
    os.replace(source, path)
    sync_folder(path.parent)


def write_bytes(path: Path, content: bytes) -> None:
    """Write ``content``, whole or not at all.

    Raises:
        UserError: the disk is full or the folder can't be written; ``path`` is then as it was.
    """
    with replacing(path) as file:
        file.write(content)


def write_text(path: Path, content: str) -> None:
    """Write ``content`` as UTF-8, whole or not at all."""
    write_bytes(path, content.encode())


def write_json(path: Path, value: Any) -> None:
    """Write ``value`` as indented JSON with a final newline, whole or not at all."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def write_sealed(path: Path, content: bytes) -> None:
    """Write ``content`` after a line with its digest, of a file that nothing else vouches for."""
    write_bytes(path, digest(content).encode() + b"\n" + content)


def read_sealed(path: Path) -> bytes:
    """What `write_sealed` wrote.

    Raises:
        OSError: it can't be read.
        Damaged: it is not what was written.
    """
    seal, _, content = path.read_bytes().partition(b"\n")
    if seal != digest(content).encode():
        raise Damaged(f"{path}: its digest is not the one it begins with")
    return content


def read_checked(path: Path, expected: str | None) -> bytes:
    """A file's bytes, which have the digest ``expected``.

    Raises:
        OSError: it can't be read.
        Damaged: it has another digest.
    """
    content = path.read_bytes()
    if digest(content) != expected:
        raise Damaged(f"{path}: its digest is not {expected}")
    return content


def check_file(path: Path, expected: str | None) -> None:
    """Compare a file, without holding it, with the digest ``expected``; otherwise as `read_checked`."""
    if digest_file(path) != expected:
        raise Damaged(f"{path}: its digest is not {expected}")


def digest(content: bytes) -> str:
    """``sha256:`` and 64 hexadecimal digits of ``content``."""
    return "sha256:" + hashlib.sha256(content).hexdigest()


def digest_json(value: Any) -> str:
    """Digest of ``value`` in canonical JSON: key order and spacing don't count."""
    return digest(json.dumps(value, sort_keys=True, separators=(",", ":")).encode())


def digest_file(path: Path) -> str:
    """Digest of a file's bytes."""
    with path.open("rb") as file:
        return "sha256:" + hashlib.file_digest(file, "sha256").hexdigest()


def digest_files(root: Path, paths: Iterable[Path]) -> str:
    """One digest over the names (relative to ``root``) and bytes of several files."""
    return digest_json({path.relative_to(root).as_posix(): digest_file(path) for path in sorted(paths)})
