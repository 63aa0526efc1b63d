"""Exceptions whose text is for the user, stops by a signal, and the format of values in messages."""

import signal
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from reprlib import Repr
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)
StopSignal = Callable[[], signal.Signals | None]


class UserError(Exception):
    """Error that the user can correct. Its text is one line: the file, key or value, and what is allowed.

    The command line prints the line without a traceback and exits with status 1.
    """


class Unproven(UserError):
    """A private training stopped, because something breaks its guarantee."""

    def __init__(self, message: str, trainings: int = 1):
        """``trainings``: number of stopped trainings."""
        super().__init__(message)
        self.trainings = trainings


class Stopped(Exception):
    """A signal ended a command early; the text says how to continue."""

    def __init__(self, received: signal.Signals, message: str):
        """``received``: the signal. ``message``: kept work, and how to continue."""
        super().__init__(message)
        self.status = 128 + received  # exit status of a shell for a process ended by a signal


@contextmanager
def recording_signals() -> Iterator[StopSignal]:
    """Record the first Ctrl-C or TERM instead of ending; a second one ends the process at once.

    Signals that the process was started to ignore, for example by `nohup`, stay ignored. Only the main thread
    receives signals, so nothing is recorded in other threads.

    Yields:
        A function that returns the recorded signal, or None.
    """
    received: list[signal.Signals] = []
    handlers_before: dict[signal.Signals, Any] = {}

    def record(number: int, frame: FrameType | None) -> None:
        received.append(signal.Signals(number))
        restore()

    def restore() -> None:
        for number, handler in handlers_before.items():
            signal.signal(number, handler)

    if threading.current_thread() is threading.main_thread():
        handlers = {number: signal.getsignal(number) for number in SIGNALS}
        handlers_before = {
            number: handler for number, handler in handlers.items() if handler not in (signal.SIG_IGN, None)
        }
        for number in handlers_before:
            signal.signal(number, record)
    try:
        yield lambda: received[0] if received else None
    finally:
        restore()


class Notice(UserWarning):
    """Something that a user should know of the given input. The command line prints it as one line."""


def notice(text: str) -> None:
    """Show ``text`` to the user, once."""
    warnings.warn(text, Notice, stacklevel=2)


@contextmanager
def reading(path: Path, remedy: str = "") -> Iterator[None]:
    """Turn a failed read of ``path`` into a `UserError` that ends with ``remedy``."""
    try:
        yield
    except OSError as problem:
        reason = " ".join((problem.strerror or str(problem)).split())
        raise UserError(f"{path}: can't be read: {reason}{remedy and f'; {remedy}'}") from problem


_SHORT = Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 80
_SHORT.maxlevel = 3


def shown(value: object) -> str:
    """Text of ``value`` for an error message: one line without control characters, cut if it is long."""
    return _SHORT.repr(value).replace("\n", " ")


def listed(names: Iterable[object], most: int = 20) -> str:
    """Names for an error message: the first ``most`` names, then the number of further names."""
    every = [*names]
    more = f" and {len(every) - most} more" if len(every) > most else ""
    return ", ".join(map(shown, every[:most])) + more


def printable(text: str, most: int = 1000) -> str:
    """``text`` cut after ``most`` characters, with control characters escaped for terminals."""
    shortened = text if len(text) <= most else f"{text[:most]}..."
    return "".join(
        character if character.isprintable() else ascii(character)[1:-1] for character in shortened
    )


def counted(count: int, noun: str) -> str:
    """``1 training``, ``3 trainings``."""
    return f"{count} {noun}{'' if count == 1 else 's'}"
