"""Commands killed at a file operation, started again, and compared with what an unbroken run leaves.

A child process runs the command under an audit hook, which counts operations that change files below the
current folder and kills the process, with no chance to tidy up, before one of them.
"""

import hashlib
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pipeline.data.fetch import fetch
from pipeline.data.prepare import prepare
from pipeline.files import clear_leftovers
from pipeline.ledgers.rows import row_ledgers
from pipeline.transport import adopt, pack
from tests.faults import project

CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.link", "os.symlink"}
# of a run, which differ from one to the next, or when somebody commits meanwhile
OTHERS = ("seconds", "started", "ended", "command", "revision", "dirty")
PATIENCE = 300.0  # seconds for a command on a busy machine


def publish() -> None:
    from pipeline.results.tracking import publishing

    settings = project.settings()
    publishing.publish(publishing.declared(settings), settings)


# what each does, and what it finds removed that the project has
COMMANDS: dict[str, tuple[Callable[[], object], tuple[str, ...]]] = {
    "fetch": (lambda: fetch("mnist", project.settings()), ("data/raw/mnist",)),
    "fetch again": (lambda: fetch("mnist", project.settings()), ()),
    "prepare": (lambda: prepare("mnist", project.settings()), ("data/prepared/mnist",)),
    "prepare again": (lambda: prepare("mnist", project.settings()), ()),
    "train": (project.train, ("runs", "reports")),
    "evaluate": (project.evaluate, ("reports/evaluations",)),
    "ledger": (lambda: row_ledgers(project.ROW, project.settings()), ("reports/ledgers",)),
    "pack": (lambda: pack(project.settings(), [project.ROW], project.PACK), (str(project.PACK),)),
    "adopt": (lambda: adopt(project.settings(), project.PACK), ("runs", "reports")),
    "publish": (publish, ()),
}


def in_child(work: Callable[[], object], folder: Path, kill_at: int | None = None) -> tuple[int, int]:
    """Run ``work`` in ``folder`` in a process of its own, killed before its ``kill_at``-th change of a file.

    Returns the status, negative where a signal ended it, and how many changes it came to.
    """
    receive, send = os.pipe()
    child = os.fork()
    if child == 0:
        status = 70
        try:
            os.close(receive)
            os.chdir(folder)
            nothing = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nothing, 1)
            os.dup2(nothing, 2)
            counted = [0]
            sys.addaudithook(_counting(counted, str(folder.resolve()), kill_at))
            clear_leftovers()
            work()
            status = 0
        finally:
            os.write(send, str(counted[0]).encode())
            os._exit(status)
    os.close(send)
    until = time.monotonic() + PATIENCE
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            break
        if time.monotonic() > until:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            raise TimeoutError("a command hangs")
        time.sleep(0.002)
    with os.fdopen(receive) as told:
        changes = told.read()
    return os.waitstatus_to_exitcode(status), int(changes or 0)


def _counting(counted: list[int], folder: str, kill_at: int | None) -> Callable[[str, Any], None]:
    def hook(event: str, arguments: Any) -> None:
        writes = (
            event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
        )
        if not (writes or event in CHANGES) or isinstance(arguments[0], int):
            return
        path = os.path.abspath(os.fsdecode(arguments[0]))
        if not path.startswith(folder):
            return
        counted[0] += 1
        if counted[0] == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    return hook


def left_in(folder: Path) -> dict[str, str]:
    """Digest of every file that counts, by its path; of runs without what may differ."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if (
            not path.is_file()
            or name.endswith(".lock")
            or name.startswith(("mlflow.db", "mlartifacts", "mlruns"))
        ):
            continue
        content = path.read_bytes()
        if name.startswith("reports/runs/"):
            run = json.loads(content)
            for one in (*run["replicas"], *run["origins"]):
                for key in OTHERS:
                    one.pop(key, None)
            content = json.dumps(run, sort_keys=True).encode()
        if name == "published.json":
            content = b""  # of records with their times
        found[name] = hashlib.sha256(content).hexdigest()
    return found


class Kills:
    """Kills of every command at every place, each compared with the unbroken run."""

    def __init__(self, made: Path, scratch: Path) -> None:
        """``made``: a whole project. ``scratch``: a folder for copies of it."""
        self.made, self.scratch = made, scratch
        self.unbroken: dict[str, tuple[int, dict[str, str]]] = {}

    def places(self, command: str) -> int:
        """How many changes of files an unbroken run of a command makes."""
        return self._unbroken(command)[0]

    def tried(self, command: str, kill_at: int) -> str | None:
        """Kill a command there and run it again: None where it ended as unbroken, else what differs."""
        work, _ = COMMANDS[command]
        expected = self._unbroken(command)[1]
        folder = self._copy(command)
        killed, _ = in_child(work, folder, kill_at)
        again, _ = in_child(work, folder)
        found = left_in(folder)
        shutil.rmtree(folder)
        if killed not in (0, -signal.SIGKILL):
            return f"ended with {killed} before it was killed"
        if again:
            return f"status {again} when it was run again"
        differing = sorted(name for name in {*expected, *found} if expected.get(name) != found.get(name))
        return f"differs: {', '.join(differing)}" if differing else None

    def _unbroken(self, command: str) -> tuple[int, dict[str, str]]:
        if command not in self.unbroken:
            folder = self._copy(command)
            status, changes = in_child(COMMANDS[command][0], folder)
            assert status == 0, command
            self.unbroken[command] = (changes, left_in(folder))
            shutil.rmtree(folder)
        return self.unbroken[command]

    def _copy(self, command: str) -> Path:
        folder = self.scratch / "project"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.made, folder)
        for name in COMMANDS[command][1]:
            path = folder / name
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        return folder
