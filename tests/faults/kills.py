"""Commands killed, started again, and compared with what an unbroken run leaves, MLflow's store included.

A child process runs the command under an audit hook, which counts operations that change files below the
current folder and kills the process, with no chance to tidy up, before one of them. What libraries written in
C do to files, SQLite above all, no hook sees: there a clock kills.
"""

import hashlib
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

from pipeline.data.fetch import fetch
from pipeline.data.prepare import prepare
from pipeline.files import clear_leftovers
from pipeline.ledgers.accounts import account
from pipeline.ledgers.rows import row_ledgers
from pipeline.reporting import report
from pipeline.transport import adopt, pack
from stages.app import app
from tests.faults import project
from tests.keeping import PASSING, lasting

CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.link", "os.symlink"}
DRAWN_ANEW = ("mlflow.user", "publication")  # tags of MLflow's runs
PATIENCE = 300.0  # seconds for a command on a busy machine


def publish() -> None:
    from pipeline.tracking import publishing

    settings = project.settings()
    publishing.publish(publishing.declared(settings), settings)


NEW_ROW = [
    "new",
    "row",
    "other",
    "--data",
    "mnist",
    "--model",
    "lenet5",
    "--method",
    "dpsgd",
    "--epsilon",
    "3",
]
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
    "publish first": (publish, ("mlflow.db",)),
    "search": (project.search, ("reports/searches",)),
    "account": (lambda: account("counted", project.settings()), ("reports/ledgers/counted.json",)),
    "new data": (lambda: app(["new", "data", "mine", "--npz", str(project.MINE)], standalone_mode=False), ()),
    "new row": (lambda: app(NEW_ROW, standalone_mode=False), ()),
    "report": (lambda: report.write(project.settings()), ()),
}


@dataclass(frozen=True)
class Kill:
    """When a command is killed: before its nth change of a file, or so many seconds after it began."""

    before_change: int | None = None
    after: float | None = None


NEVER = Kill()


@dataclass(frozen=True)
class Unbroken:
    """What a command that nobody kills does."""

    changes: int
    seconds: float
    left: dict[str, str]  # digest of every file that counts, by its path


def in_child(work: Callable[[], object], folder: Path, kill: Kill = NEVER) -> tuple[int, int]:
    """Run ``work`` in ``folder`` in a process of its own, and kill it.

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
            sys.addaudithook(_counting(counted, str(folder.resolve()), kill.before_change))
            clear_leftovers()
            work()
            status = 0
        finally:
            os.write(send, str(counted[0]).encode())
            os._exit(status)
    os.close(send)
    began = time.monotonic()
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            break
        passed = time.monotonic() - began
        if passed > PATIENCE or (kill.after is not None and passed > kill.after):
            os.kill(child, signal.SIGKILL)
            _, status = os.waitpid(child, 0)
            if passed > PATIENCE:
                raise TimeoutError("a command hangs")
            break
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
    """Digest of every file that counts, by its path; of runs less what may differ, of MLflow what it says."""
    found = store(folder)
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
            content = json.dumps(lasting(json.loads(content)), sort_keys=True).encode()
        elif name.startswith("reports/searches/"):
            searched = json.loads(content)
            for one in searched["candidates"]:
                del one["seconds"]
            for name in PASSING:
                searched["provenance"].pop(name, None)
            content = json.dumps(searched, sort_keys=True).encode()
        found[name] = hashlib.sha256(content).hexdigest()
    return found


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
        found: dict[str, str] = {}
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
            while key in found:
                key += ", again"
            found[key] = hashlib.sha256("\n".join(said).encode()).hexdigest()
    return found


def _named(value: str, names: dict[str, str]) -> str:
    """A value with the names of runs instead of their numbers, which are drawn anew."""
    return re.sub(r"\b[0-9a-f]{32}\b", lambda found: names.get(found[0], found[0]), value)


class Kills:
    """Kills of every command at every place, each compared with the unbroken run."""

    def __init__(self, made: Path, scratch: Path) -> None:
        """``made``: a whole project. ``scratch``: a folder for copies of it."""
        self.made, self.scratch = made, scratch
        self._known: dict[str, Unbroken] = {}

    def tried(self, command: str, kill: Kill, unbroken: Unbroken | None = None) -> str | None:
        """Kill a command there and run it again: None where it ended as unbroken, else what differs."""
        work, _ = COMMANDS[command]
        expected = (unbroken or self.unbroken(command)).left
        folder = self._copy(command)
        killed, _ = in_child(work, folder, kill)
        again, _ = in_child(work, folder)
        found = left_in(folder)
        shutil.rmtree(folder)
        if killed not in (0, -signal.SIGKILL):
            return f"ended with {killed} before it was killed"
        if again:
            return f"status {again} when it was run again"
        differing = sorted(name for name in {*expected, *found} if expected.get(name) != found.get(name))
        return f"differs: {', '.join(differing)}" if differing else None

    def unbroken(self, command: str) -> Unbroken:
        """What a command does when nobody kills it."""
        if command not in self._known:
            folder = self._copy(command)
            began = time.monotonic()
            status, changes = in_child(COMMANDS[command][0], folder)
            seconds = time.monotonic() - began
            assert status == 0, command
            self._known[command] = Unbroken(changes, seconds, left_in(folder))
            shutil.rmtree(folder)
        return self._known[command]

    def _copy(self, command: str) -> Path:
        folder = self.scratch / "project"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.made, folder)
        for name in COMMANDS[command][1]:
            path = folder / name
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        return folder
