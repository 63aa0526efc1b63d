"""A row's checkpoints and its log's last line, carried to the DVC remote while it trains, and fetched there.

Beside a checkpoint stands ``NAME.pt.carried``: the number that it had in the remote when this machine last
sent or fetched it, and which writing of it that was. So a machine whose number is the remote's has the newest
itself, without comparing clocks.
"""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pipeline.cluster.logs import last_line
from pipeline.cluster.transit import Transit
from pipeline.errors import UserError
from pipeline.files import beside, write_text

CHECKPOINTS, LINE, PACK = "checkpoints", "line", "pack"  # of a row, in the remote


def send(transit: Transit, row: str, folder: Path) -> None:
    """Send the checkpoints in ``folder`` that are newer than those that were sent."""
    # the trainer replaces a checkpoint by another file, and removes all when it is done; this link stays
    held = beside(folder)
    with suppress(FileNotFoundError):
        for path in sorted(folder.rglob("*.pt")):
            try:
                held.unlink(missing_ok=True)
                os.link(path, held)
                written = held.stat().st_mtime_ns
                if _carried(path)[1] != written:
                    name = path.relative_to(folder).as_posix()
                    number = transit.put(held, f"{row}/{CHECKPOINTS}/{name}")
                    if path.exists():
                        write_text(_mark(path), f"{number} {written}")
            finally:
                held.unlink(missing_ok=True)


def fetch(transit: Transit, row: str, folder: Path) -> int:
    """Fetch the checkpoints that another machine carried further than this one; returns how many."""
    fetched = 0
    for name, number in transit.numbers(f"{row}/{CHECKPOINTS}").items():
        path = folder / name
        if path.exists() and _carried(path)[0] == number:
            continue  # this machine's own, or what it has made of it since
        if number := transit.get(f"{row}/{CHECKPOINTS}/{name}", path):
            write_text(_mark(path), f"{number} {path.stat().st_mtime_ns}")
            fetched += 1
    return fetched


@contextmanager
def carrying(
    transit: Transit, row: str, folder: Path, log: Path, every: float, say: Callable[[str], None]
) -> Iterator[None]:
    """Send what is new every ``every`` seconds, beside the work; ``say`` is told what couldn't be sent."""
    ended, told = threading.Event(), ""

    def once() -> None:
        nonlocal told
        try:
            send(transit, row, folder)
            if (line := last_line(log)) and line != told:
                _send_line(transit, row, line, log)
                told = line
        except (UserError, OSError) as problem:  # a network's, as a rule: later it will do
            say(f"{row}: not sent yet: {problem}")

    def until_ended() -> None:
        while not ended.wait(max(every, 0.1)):
            once()

    thread = threading.Thread(target=until_ended, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        once()


def _send_line(transit: Transit, row: str, line: str, log: Path) -> None:
    told = log.with_suffix(".line")
    write_text(told, line)
    transit.put(told, f"{row}/{LINE}")


def _mark(path: Path) -> Path:
    return path.with_name(f"{path.name}.carried")


def _carried(path: Path) -> tuple[int, int]:
    """Number in the remote, and when what has it was written here; zeros where it never was there."""
    try:
        number, written = _mark(path).read_text().split()
        return int(number), int(written)
    except (OSError, ValueError):
        return 0, 0
