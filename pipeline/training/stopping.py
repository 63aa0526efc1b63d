"""Ending a training between two steps, where a signal asks for it."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)
StopSignal = Callable[[], signal.Signals | None]


@contextmanager
def noting_signals() -> Iterator[StopSignal]:
    """Note the first Ctrl-C or TERM instead of dying of it; a second one ends the process at once.

    What it yields tells the signal that came. A signal that whoever started the process has it ignore, as
    `nohup` does, stays ignored; outside the main thread, which alone receives signals, none is noted.
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
