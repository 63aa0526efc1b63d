"""The exceptions whose text is meant for the person at the keyboard, and how they show what was given."""

import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from reprlib import Repr


class UserError(Exception):
    """Something the user can mend: one line naming the file, key or value and what is allowed.

    The command line prints it alone, without a traceback, and exits with status 1.
    """


class Unproven(UserError):
    """A private training stopped, since what it found breaks its guarantee."""

    def __init__(self, message: str, trainings: int):
        """``trainings``: replicas that it stopped."""
        super().__init__(message)
        self.trainings = trainings


class Stopped(Exception):
    """A command that ended early because a signal asked it to; the text says how to go on."""

    def __init__(self, received: signal.Signals, message: str):
        """``received``: the signal. ``message``: what was kept, and how to go on."""
        super().__init__(message)
        self.status = 128 + received  # as a shell tells of a process that a signal ended


@contextmanager
def reading(path: Path, remedy: str = "") -> Iterator[None]:
    """Turn a failed read of ``path`` into one clear line, which ends with the ``remedy`` there is."""
    try:
        yield
    except OSError as problem:
        reason = problem.strerror or str(problem)
        raise UserError(f"{path}: can't be read: {reason}{remedy and f'; {remedy}'}") from problem


_SHORT = Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 80
_SHORT.maxlevel = 3


def shown(value: object) -> str:
    """``value`` as an error line shows it: on one line, cut where it is long, without control characters."""
    return _SHORT.repr(value).replace("\n", " ")


def listed(names: Iterable[object], most: int = 20) -> str:
    """Names as an error line lists them: the first ``most``, and the number of the others."""
    every = [*names]
    more = f" and {len(every) - most} more" if len(every) > most else ""
    return ", ".join(map(shown, every[:most])) + more


def printable(text: str, most: int = 1000) -> str:
    """A line without control characters, which a terminal would obey, and cut after ``most`` characters."""
    shortened = text if len(text) <= most else f"{text[:most]}..."
    return "".join(
        character if character.isprintable() else ascii(character)[1:-1] for character in shortened
    )
