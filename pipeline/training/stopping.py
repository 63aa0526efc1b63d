"""Ending a training between two steps, where a signal asks for it."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)
Asked = Callable[[], signal.Signals | None]


@contextmanager
def noting_signals() -> Iterator[Asked]:
    """Note the first Ctrl-C or TERM instead of dying of it; a second one ends the process at once.

    What it yields tells the signal that came. A signal that whoever started the process has it ignore, as
    `nohup` does, stays ignored; outside the main thread, which alone receives signals, none is noted.
    """
    came: list[signal.Signals] = []
    before: dict[signal.Signals, Any] = {}

    def note(number: int, frame: FrameType | None) -> None:
        came.append(signal.Signals(number))
        restore()

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    if threading.current_thread() is threading.main_thread():
        handlers = {number: signal.getsignal(number) for number in SIGNALS}
        before = {number: old for number, old in handlers.items() if old not in (signal.SIG_IGN, None)}
        for number in before:
            signal.signal(number, note)
    try:
        yield lambda: came[0] if came else None
    finally:
        restore()
