"""Reading and writing files so that nobody ever sees half of one, and digests of what they hold."""

import hashlib
import json
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pipeline.errors import writing


def write_bytes(path: Path, content: bytes) -> None:
    """Write ``content`` under a temporary name beside ``path``, flush it to disk, then rename.

    Raises:
        UserError: the disk is full or the folder can't be written; ``path`` is then as it was.
    """
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.chmod(temporary, 0o644)
            os.replace(temporary, path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise


def write_text(path: Path, content: str) -> None:
    """Write ``content`` as UTF-8, atomically."""
    write_bytes(path, content.encode())


def write_json(path: Path, value: Any) -> None:
    """Write ``value`` as indented JSON with a final newline, atomically."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


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
