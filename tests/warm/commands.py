"""A folder of commands that a warm server runs, and what they are run with."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
COMMANDS = ("dprepro", "dvc", "python")
SHIM = """\
#!/bin/sh
exec "{python}" -I -S "{client}" "{socket}" {command} "$@"
"""


def environment(library: Path, *places: Path) -> dict[str, str]:
    """That of a command which runs the code in ``library``, and is looked for in ``places`` first.

    Without the variables of a git hook that runs the tests, and without somebody's MLflow.
    """
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("GIT_", "MLFLOW_"))}
    who = {f"GIT_{role}_{what}": "test" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    path = ":".join(map(str, (*places, Path(sys.executable).parent, os.environ["PATH"])))
    threads = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
    return {**kept, **who, **threads, "PATH": path, "PYTHONPATH": str(library)}


def run(line: str, folder: Path, environment: Mapping[str, str], fails: bool = False) -> str:
    """What a line says that is typed in a folder."""
    done = subprocess.run(line, shell=True, cwd=folder, env=environment, capture_output=True, text=True)
    assert (done.returncode != 0) == fails, f"{line}\n{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr


def heed_ctrl_c() -> None:
    """In a new process: a shell has what it runs in the background, tests too, ignore it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@contextmanager
def commands(
    folder: Path, python: Path = Path(sys.executable), environment: Mapping[str, str] | None = None
) -> Iterator[Path]:
    """``folder/bin`` with `dprepro`, `dvc` and a `python` that runs scripts, while the block lasts.

    ``python`` is the interpreter whose packages the commands have; ``environment`` is that of its process.
    """
    server = start(folder, subprocess.PIPE, python, environment)
    try:
        yield folder / "bin"
    finally:
        assert server.stdin is not None
        server.stdin.close()
        server.wait()


def start(
    folder: Path,
    ends: int | IO[bytes],
    python: Path = Path(sys.executable),
    environment: Mapping[str, str] | None = None,
) -> subprocess.Popen[bytes]:
    """A server for the commands in ``folder/bin``, which ends when nobody can write to ``ends`` any more."""
    place, there = folder / "bin", folder / "socket"
    place.mkdir(parents=True)
    for name in COMMANDS:
        shim = SHIM.format(python=sys.executable, client=HERE / "client.py", socket=there, command=name)
        (place / name).write_text(shim)
        (place / name).chmod(0o755)
    line: list[str | Path] = [python, "-P", HERE / "server.py", there]
    server = subprocess.Popen(line, stdin=ends, stdout=subprocess.DEVNULL, env=environment)
    while not there.exists():
        assert server.poll() is None, "the warm server ended"
        time.sleep(0.05)
    return server
