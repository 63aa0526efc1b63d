"""Commands killed, started again, and compared with what an unbroken run leaves, MLflow's store included.

A child process runs the command under an audit hook, which counts operations that change files below the
current folder and kills the process, with no chance to tidy up, before one of them. No hook sees what SQLite
does to files: its writing statements and its commits count as changes, and a clock kills besides.
"""

import json
import os
import re
import shutil
import signal
import sqlite3
import sys
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dprepro.pipeline.files import digest, digest_file
from tests.made_records import lasting

CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.link", "os.symlink"}
DRAWN_ANEW = ("mlflow.user", "publication")  # tags of MLflow's runs
PATIENCE = 300.0  # seconds for a command on a busy machine


@dataclass(frozen=True)
class Kill:
    """When a command is killed: before its nth change of a file, or so many seconds after it began."""

    before_change: int | None = None
    after: float | None = None


NEVER = Kill()


def in_child(work: Callable[[], object], folder: Path, kill: Kill = NEVER) -> tuple[int, int]:
    """Run ``work`` in ``folder`` in a process of its own, and kill it.

    Returns the status, negative where a signal ended it, and how many changes it came to.
    """
    receive, send = os.pipe()
    child = os.fork()
    if child == 0:
        status, changes = 70, 0

        def change() -> None:
            nonlocal changes
            changes += 1
            if changes == kill.before_change:
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
        passed = time.monotonic() - began
        assert passed < PATIENCE, "a command hangs"
        if kill.after is not None and passed > kill.after:
            os.kill(child, signal.SIGKILL)
            ended = os.waitpid(child, 0)
            break
        time.sleep(0.002)
    with os.fdopen(receive) as told:
        return os.waitstatus_to_exitcode(ended[1]), int(told.read() or 0)


def _call_before_changes(change: Callable[[], None], folder: str) -> None:
    """Call ``change`` before what changes files below a folder, and before what SQLAlchemy writes."""

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
    if "sqlalchemy" in sys.modules:
        from sqlalchemy import event
        from sqlalchemy.engine import Engine

        def before_statement(*arguments: Any) -> None:
            statement = arguments[2] if len(arguments) > 2 else "COMMIT"
            if statement.lstrip().upper().startswith(("INSERT", "UPDATE", "DELETE", "COMMIT")):
                change()

        event.listen(Engine, "before_cursor_execute", before_statement)
        event.listen(Engine, "commit", before_statement)


class Unbroken:
    """A command that nobody kills: how many changes and how long it took, and what it left."""

    def __init__(self, work: Callable[[], object], begun: Path, scratch: Path):
        """``work`` is done in a copy in ``scratch`` of ``begun``, what there is before it."""
        self.work, self.begun, self.scratch = work, begun, scratch
        began = time.monotonic()
        status, self.changes = in_child(work, shutil.copytree(begun, scratch / "unbroken"))
        assert status == 0, f"ended with {status}"
        self.seconds = time.monotonic() - began
        self.left = left_in(scratch / "unbroken")

    def check_killed(self, kill: Kill, begun: Path | None = None) -> None:
        """Make sure that the command, killed there and run again, leaves the same."""
        folder = shutil.copytree(begun or self.begun, self.scratch / "killed")
        killed, _ = in_child(self.work, folder, kill)
        assert killed in (0, -signal.SIGKILL)
        assert in_child(self.work, folder)[0] == 0
        assert left_in(folder) == self.left
        shutil.rmtree(folder)


def left_in(folder: Path) -> dict[str, str]:
    """Digest of every file that counts, by its path; of runs less what may differ, of MLflow what it says."""
    stored = store(folder)
    for path in sorted(each for each in folder.rglob("*") if each.is_file()):
        name = path.relative_to(folder).as_posix()
        if name.startswith(("reports/trainings/", "reports/searches/")):
            content = json.dumps(lasting(path), sort_keys=True)
            stored[name] = digest(content.encode())
        elif not name.endswith(".lock") and not name.startswith(("mlflow.db", "mlartifacts", "mlruns")):
            stored[name] = digest_file(path)
    return stored


def store(folder: Path) -> dict[str, str]:
    """What MLflow's store says of every run, by experiment and name; without numbers that are drawn anew."""
    path = folder / "mlflow.db"
    if not path.exists():
        return {}
    with closing(sqlite3.connect(path)) as asked:
        (sound,) = asked.execute("PRAGMA integrity_check").fetchone()
        assert sound == "ok", sound
        runs = asked.execute(
            "SELECT run_uuid, experiments.name, runs.name, status"
            " FROM runs JOIN experiments USING (experiment_id) WHERE runs.lifecycle_stage = 'active'"
        ).fetchall()
        names = {run: name for run, _, name, _ in runs}
        stored: dict[str, str] = {}
        for run, experiment, name, status in runs:
            said = [status]
            for table in ("params", "tags"):
                pairs = asked.execute(f"SELECT key, value FROM {table} WHERE run_uuid = ?", (run,))
                said += sorted(
                    f"{table} {key} {_named(value, names)}" for key, value in pairs if key not in DRAWN_ANEW
                )
            points = asked.execute("SELECT key, step, value FROM metrics WHERE run_uuid = ?", (run,))
            said += sorted(f"metric {key} {step} {value!r}" for key, step, value in points)
            key = f"mlflow.db: {experiment}, {name}"
            while key in stored:
                key += ", again"
            stored[key] = "\n".join(said)
    return stored


def _named(value: str, names: dict[str, str]) -> str:
    """A value with the names of runs instead of their numbers, which are drawn anew."""
    return re.sub(r"\b[0-9a-f]{32}\b", lambda match: names.get(match[0], match[0]), value)
