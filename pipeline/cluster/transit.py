"""Files on their way between machines that share no folder: through the file system of DVC's default remote.

They lie in a folder of their own there, beside what DVC keeps. A file has a name and a number,
``NAME/000003``, and every writing takes the next one: it arrives under another name, is moved, and what was
before is removed then. So nobody ever reads half of one, whatever the remote makes of two that write at once.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pipeline.errors import UserError, shown
from pipeline.files import beside, place

FOLDER = "dprepro-repro"
TRIES = 3  # at reading what its writer replaces meanwhile


class Transit:
    """A folder of the remote."""

    def __init__(self, checkout: Path, folder: str):
        """Find the remote.

        Args:
            checkout: a folder whose DVC has a default remote.
            folder: in `FOLDER` of the remote.

        Raises:
            UserError: there is no such remote, or DVC lacks what it needs to speak to it.
        """
        with _speaking("the DVC remote"):
            from dvc.repo import Repo

            with Repo(str(checkout)) as repo:
                remote = repo.cloud.get_remote()
            self._files: Any = remote.fs
            self._top = self._files.join(remote.path, FOLDER, folder)

    def numbers(self, folder: str) -> dict[str, int]:
        """Under ``folder`` all names, without it, and the number of the newest file of each."""
        newest: dict[str, int] = {}
        for name, number in self._found(folder):
            newest[name] = max(number, newest.get(name, 0))
        return newest

    def newest(self, name: str) -> int:
        """The number of the newest file of a name; 0: there is none."""
        return self.numbers(name).get("", 0)

    def put(self, path: Path, name: str) -> int:
        """Write a file; returns its number."""
        before = [number for under, number in self._found(name) if not under]
        number = max(before, default=0) + 1
        whole = self._at(name, f"{number:06d}")
        arriving = self._at(name, beside(Path(f"{number:06d}")).name)
        with _speaking(self._at(name)):
            self._files.makedirs(self._at(name))
            self._files.put_file(str(path), arriving)
            self._files.mv(arriving, whole)
            for old in before:
                self._files.rm(self._at(name, f"{old:06d}"))
        return number

    def get(self, name: str, path: Path) -> int:
        """Read the newest file of a name to ``path``, whole or not at all; returns its number, 0: none."""
        path.parent.mkdir(parents=True, exist_ok=True)
        arriving = beside(path)
        try:
            for _ in range(TRIES):
                if not (number := self.newest(name)):
                    return 0
                with _speaking(self._at(name)):
                    try:
                        self._files.get_file(self._at(name, f"{number:06d}"), str(arriving))
                    except FileNotFoundError:
                        continue
                    place(arriving, path)
                    return number
        finally:
            arriving.unlink(missing_ok=True)
        raise UserError(f"{self._at(name)}: is replaced again and again; two work on the same")

    def clear(self, folder: str) -> None:
        """Remove all under ``folder``."""
        with _speaking(self._at(folder)):
            if self._exists(folder):
                self._files.rm(self._at(folder), recursive=True)

    def _found(self, folder: str) -> Iterator[tuple[str, int]]:
        """Name, from ``folder`` on, and number of every file that is whole."""
        with _speaking(self._at(folder)):
            found = list(self._files.find(self._at(folder))) if self._exists(folder) else []
        for path in found:
            *name, last = self._files.relparts(path, self._at(folder))
            if last.isdecimal():
                yield "/".join(name), int(last)

    def _exists(self, folder: str) -> bool:
        self._files.fs.invalidate_cache()  # others write there
        return bool(self._files.exists(self._at(folder)))

    def _at(self, *parts: str) -> str:
        return str(self._files.join(self._top, *parts))


@contextmanager
def _speaking(where: str) -> Iterator[None]:
    """Turn whatever a remote's file system raises into one clear line."""
    try:
        yield
    except UserError:
        raise
    except Exception as problem:  # of whichever library speaks to the remote
        raise UserError(f"{where}: {type(problem).__name__}: {shown(str(problem))}") from problem
