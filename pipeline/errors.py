"""The one exception whose text is meant for the person at the keyboard."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class UserError(Exception):
    """Something the user can mend: one line naming the file, key or value and what is allowed.

    The command line prints it alone, without a traceback, and exits with status 1.
    """


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn a failed write under ``path`` (full disk, read-only folder) into one clear line."""
    try:
        yield
    except OSError as problem:
        where = problem.filename or path
        raise UserError(f"{where}: can't be written: {problem.strerror or problem}") from problem
