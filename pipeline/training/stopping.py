"""End of a training between two steps, after a signal."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)
StopSignal = Callable[[], signal.Signals | None]


@contextmanager
def recording_signals() -> Iterator[StopSignal]:
    """Record the first Ctrl-C or TERM instead of ending; a second one ends the process at once.

    Yields a function that returns the recorded signal. Signals that the process was started to ignore, for
    example by `nohup`, stay ignored. Only the main thread receives signals, so nothing is recorded in other
    threads.
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
