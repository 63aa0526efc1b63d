"""Commands killed, started again, and compared with what an unbroken run leaves.

A child process runs the command under an audit hook, which counts operations that change files below the
current folder and kills the process, with no chance to tidy up, before one of them.
"""

import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dprepro.pipeline.files import digest, digest_file
from tests.made_records import lasting

CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.link", "os.symlink"}
PATIENCE = 300.0  # seconds for a command on a busy machine


def in_child(work: Callable[[], object], folder: Path, before_change: int | None = None) -> tuple[int, int]:
    """Run ``work`` in ``folder`` in a process of its own, and kill it before its nth change of a file.

    Returns the status, negative where a signal ended it, and how many changes it came to.
    """
    receive, send = os.pipe()
    child = os.fork()
    if child == 0:
        status, changes = 70, 0

        def change() -> None:
            nonlocal changes
            changes += 1
            if changes == before_change:
                os.kill(os.getpid(), signal.SIGKILL)

        try:
            os.close(receive)
            os.chdir(folder)
            nothing = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nothing, 1)
            os.dup2(nothing, 2)
            _call_before_changes(change, str(folder.resolve()))
            work()
            status = 0
        finally:
            os.write(send, str(changes).encode())
            os._exit(status)
    os.close(send)
    began = time.monotonic()
    while not (ended := os.waitpid(child, os.WNOHANG))[0]:
        assert time.monotonic() - began < PATIENCE, "a command hangs"
        time.sleep(0.002)
    with os.fdopen(receive) as told:
        return os.waitstatus_to_exitcode(ended[1]), int(told.read() or 0)


def _call_before_changes(change: Callable[[], None], folder: str) -> None:
    """Call ``change`` before what changes files below a folder."""

    def before_operation(event: str, arguments: Any) -> None:
        writes = (
            event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
        )
        if not (writes or event in CHANGES) or isinstance(arguments[0], int):
            return
        if os.path.abspath(os.fsdecode(arguments[0])).startswith(folder):
            change()

    sync = os.fsync  # which no audit hook sees

    def before_sync(file: Any) -> None:
        change()
        sync(file)

    sys.addaudithook(before_operation)
    os.fsync = before_sync  # type: ignore[assignment]


class Unbroken:
    """A command that nobody kills: how many changes it came to, and what it left."""

    def __init__(self, work: Callable[[], object], begun: Path, scratch: Path):
        """``work`` is done in a copy in ``scratch`` of ``begun``, what there is before it."""
        self.work, self.begun, self.scratch = work, begun, scratch
        status, self.changes = in_child(work, shutil.copytree(begun, scratch / "unbroken"))
        assert status == 0, f"ended with {status}"
        self.left = left_in(scratch / "unbroken")

    def check_killed(self, before_change: int) -> None:
        """Make sure that the command, killed there and run again, leaves the same."""
        folder = shutil.copytree(self.begun, self.scratch / "killed")
        killed, _ = in_child(self.work, folder, before_change)
        assert killed in (0, -signal.SIGKILL)
        assert in_child(self.work, folder)[0] == 0
        assert left_in(folder) == self.left
        shutil.rmtree(folder)


def left_in(folder: Path) -> dict[str, str]:
    """Digest of every file that counts, by its path; of records less what may differ."""
    stored: dict[str, str] = {}
    for path in sorted(each for each in folder.rglob("*") if each.is_file()):
        name = path.relative_to(folder).as_posix()
        if name.startswith(("reports/trainings/", "reports/searches/")):
            content = json.dumps(lasting(path), sort_keys=True)
            stored[name] = digest(content.encode())
        elif not name.endswith(".lock"):
            stored[name] = digest_file(path)
    return stored
