"""Atomic writing of files, reading with comparison of digests, digests, and limits on foreign files.

A file is written under a temporary name in its folder, flushed to the disk, and renamed; then the folder is
flushed. The temporary name contains the names of host and process. The next process that writes the file
removes the leftovers of a killed one. Git and DVC ignore leftovers.
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

from dprepro.errors import UserError

# Temporary names: '.NAME.HOST-PID.partial' of a file or folder before it is complete, and
# '.NAME.HOST-PID.replaced' of a folder during its replacement. A database also has a journal.
PARTIAL, REPLACED = "partial", "replaced"
_TEMPORARY = re.compile(
    rf"\.(?P<name>.+)\.(?P<host>\w+)-(?P<pid>\d+)\.(?P<kind>{PARTIAL}|{REPLACED})(-journal|-wal|-shm)?"
)
_DAY = 24 * 3600.0  # seconds after which another machine's temporary files count as leftovers

# Limits on the size of foreign input, checked before memory is allocated. Each is many times the size of the
# largest real file, and far below a harmful size.
MB = 1 << 20

# bytes of a run, an evaluation, ledgers (at present 2 MB) or training curves
RECORD_BYTES = 64 * MB
# the user's own data: bytes of a file or of all unpacked examples, pixels of an image before it is scaled,
# files of a folder, and classes
OWN_BYTES, OWN_PIXELS, OWN_FILES, OWN_CLASSES = 8192 * MB, 50_000_000, 2_000_000, 10_000
# columns of the user's CSV file
OWN_COLUMNS = 1000
# lines of a person in them; far more would need so much noise that nothing is learned
OWN_GROUP = 100
# bytes of an exported network's weights; also of the constants (buffers) that its architecture comes to
WEIGHTS_BYTES = 4096 * MB
# numbers of one input of an exported network: an image of 4096 x 4096 pixels in colour
INPUT_NUMBERS = 3 * 4096 * 4096
# unpacked size of a pack: the larger of PACK_TIMES its own size and PACK_LEAST; weights hardly shrink
PACK_TIMES, PACK_LEAST = 4, 64 * MB


class Damaged(Exception):
    """A file's digest differs from the recorded one."""


def temporary_path(path: Path, kind: str = PARTIAL) -> Path:
    """Temporary name next to ``path`` for this process, with the ending ``kind``."""
    return path.with_name(f".{path.name}.{_host()}-{os.getpid()}.{kind}")


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn a failed write under ``path`` (full disk, read-only folder) into a `UserError`.

    The error names the final path, not the temporary one.
    """
    try:
        yield
    except OSError as problem:
        # of a copy, the second file is the one that is written
        parts = Path(problem.filename2 or problem.filename or path).parts
        matches = {part: match["name"] for part in parts if (match := _TEMPORARY.fullmatch(part))}
        location = Path(*(matches.get(part, part) for part in parts))
        # numpy's own OSError of a full disk has no number
        why = problem.strerror or f"the disk may be full ({problem})"
        raise UserError(f"{location}: can't be written: {why}") from problem


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Open a temporary file that replaces ``path`` when it is complete and on the disk.

    Raises:
        UserError: the disk is full or the folder can't be written. After any error ``path`` is unchanged.
    """
    if path.is_dir():
        raise UserError(f"{path}: is a folder; allowed: a file")
    temporary = temporary_path(path)
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        clear_leftovers(path)
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
    """Create an empty temporary folder that replaces ``folder`` after the block.

    The old folder stays until the new one is complete. A kill between the two renames leaves the old folder
    under a temporary name, and the next call restores it.

    Raises:
        UserError: the folder can't be written. After any error ``folder`` is unchanged.
    """
    building, replaced = temporary_path(folder), temporary_path(folder, REPLACED)
    clear_leftovers(folder)
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
    """Hold a lock during the block. The lock's file and folder are created if necessary.

    Args:
        lock: the lock's file. The end of the process, even by a kill, releases the lock.
        busy: message if another process holds the lock; None: wait for that process.

    Raises:
        UserError: another process holds the lock, or the folder can't be written.
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
    """Return whether the name of ``path`` has the form of `temporary_path`."""
    return _TEMPORARY.fullmatch(path.name) is not None


def clear_leftovers(path: Path) -> None:
    """Remove temporary files of ``path`` that killed processes left, and restore a replaced folder.

    Files of a running process on this machine stay. Files of other machines stay for a day.
    """
    for match in filter(None, (_TEMPORARY.fullmatch(each.name) for each in path.parent.glob(".*"))):
        if match["name"] == path.name:
            with suppress(OSError):
                _clear(path.parent, match)


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
        return True  # of an earlier process with this number
    try:
        os.kill(int(match["pid"]), 0)
    except (ProcessLookupError, OverflowError):
        return True
    except PermissionError:
        return False
    return False


def _host() -> str:
    """Name of this machine, in a form for file names."""
    return re.sub(r"\W", "_", socket.gethostname())[:32] or "host"


def sync_folder(folder: Path) -> None:
    """Flush a folder's entries to the disk, if the system supports this."""
    with suppress(OSError):
        _sync(folder)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def place(source: Path, path: Path) -> None:
    """Move a file to its place on the same disk, atomically.

    Raises:
        OSError: it can't be moved.
    """
    _sync(source)
    os.replace(source, path)
    sync_folder(path.parent)


def write_bytes(path: Path, content: bytes) -> None:
    """Write ``content`` atomically.

    Raises:
        UserError: the disk is full or the folder can't be written; then ``path`` is unchanged.
    """
    with replacing(path) as file:
        file.write(content)


def write_text(path: Path, content: str) -> None:
    """Write ``content`` as UTF-8, atomically."""
    write_bytes(path, content.encode())


def write_json(path: Path, value: Any) -> None:
    """Write ``value`` as indented JSON with a final newline, atomically."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def read_checked(path: Path, expected: str | None) -> bytes:
    """Bytes of a file, whose digest must be ``expected``; None matches no file.

    Raises:
        OSError: it can't be read.
        Damaged: it has another digest.
    """
    content = path.read_bytes()
    if digest(content) != expected:
        raise Damaged(f"{path}: its digest is not {expected}")
    return content


def check_file(path: Path, expected: str | None) -> None:
    """Compare a file's digest with ``expected`` in little memory; errors are those of `read_checked`."""
    if digest_file(path) != expected:
        raise Damaged(f"{path}: its digest is not {expected}")


def digest(content: bytes) -> str:
    """``sha256:`` and the 64 hexadecimal digits for ``content``."""
    return "sha256:" + hashlib.sha256(content).hexdigest()


def digest_json(value: Any) -> str:
    """Digest of ``value`` in canonical JSON, so key order and spacing don't count."""
    return digest(json.dumps(value, sort_keys=True, separators=(",", ":")).encode())


def digest_file(path: Path) -> str:
    """Digest of a file's bytes."""
    with path.open("rb") as file:
        return "sha256:" + hashlib.file_digest(file, "sha256").hexdigest()


def digest_files(root: Path, paths: Iterable[Path]) -> str:
    """Digest of the names (relative to ``root``) and bytes of several files."""
    return digest_json({path.relative_to(root).as_posix(): digest_file(path) for path in sorted(paths)})
