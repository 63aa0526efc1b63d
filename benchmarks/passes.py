"""What share of a step is neither a forward nor a backward pass: sampling, noise, descent and so on."""

import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import torch

from pipeline.privacy import gradients, layer_gradients

LOOK_INTERVAL = 0.0005  # seconds between looks
SWITCH_INTERVAL = 1e-4  # seconds after which Python lets the thread that looks have its turn
_TORCH = Path(torch.__file__).parent
# Whoever is inside one of these is passing: layers, automatic differentiation, and the project's own way of
# taking clipped sums, which begins behind the look-up of the batch
_FILES = (gradients.__file__, layer_gradients.__file__)
_FOLDERS = tuple(f"{_TORCH / name}/" for name in ("nn", "autograd", "_functorch"))


def outside(step: Callable[[], None], seconds: float) -> float:
    """The share of ``step``'s time that no pass takes, of looks at its stack while it runs for ``seconds``.

    Looking costs a step next to nothing, where measuring every call would cost small ones a tenth.
    """
    thread, looks = threading.get_ident(), [0, 0]
    finished = threading.Event()

    def look() -> None:
        while not finished.wait(LOOK_INTERVAL):
            looks[_is_passing(thread)] += 1

    interval_before, watcher = sys.getswitchinterval(), threading.Thread(target=look, daemon=True)
    sys.setswitchinterval(SWITCH_INTERVAL)
    try:
        watcher.start()
        started_at = time.monotonic()
        while time.monotonic() - started_at < seconds:
            step()
    finally:
        finished.set()
        watcher.join()
        sys.setswitchinterval(interval_before)
    return looks[False] / max(1, sum(looks))


def _is_passing(thread: int) -> bool:
    """Whether a thread is inside a pass now."""
    frame = sys._current_frames().get(thread)
    while frame is not None:
        name = frame.f_code.co_filename
        if name in _FILES or name.startswith(_FOLDERS):
            return True
        frame = frame.f_back
    return False
