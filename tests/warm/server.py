"""Runs commands in forks of a process that has imported what they take seconds to import.

A test that runs `dprepro` or `dvc` ten times spends most of its time on importing torch ten times. Here other
people's packages are imported once; a command is a fork, which then imports the code under test itself, from
wherever its PYTHONPATH says. So it is the command as installed, but for where its interpreter comes from.
Tests of kills and signals, of start-up and of installed packages start real ones.

`python server.py SOCKET`: listens there until its standard input ends. `client.py` says what it is sent.
"""

import json
import os
import runpy
import signal
import socket
import sys
import threading
from contextlib import suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

PACKAGES = (
    "torch", "torch.func", "torch.utils.flop_counter", "torch.multiprocessing", "numpy", "scipy.stats",
    "scipy.optimize", "scipy.signal", "dp_accounting", "dp_accounting.pld", "dp_accounting.rdp",
    "opacus.accountants.analysis.prv", "pydantic", "typer", "typer.main", "rich.console", "rich.progress",
    "ruamel.yaml", "filelock", "dvc.cli", "dvc.repo", "dvc.commands.repro", "dvc_data.index", "mlflow",
    "mlflow.tracking", "mlflow.store.tracking.sqlalchemy_store", "matplotlib.figure",
    "matplotlib.backends.backend_svg",
)  # fmt: skip
MAIN = {"dprepro": "dprepro.stages.app", "dvc": "dvc.cli"}  # modules whose `main` a command is


def serve(path: str) -> None:
    """Answer one connection after the other, each by a fork."""
    for name in PACKAGES:
        import_module(name)
    # what a command starts by its own interpreter is served too
    sys.executable = str(Path(path).with_name("bin") / "python")
    # where packages are installed, without what the environment of this process adds
    base = [entry for entry in sys.path if entry not in os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for forks: they answer themselves
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(f"{path}.begun")
        listening.listen(64)
        os.rename(f"{path}.begun", path)  # who sees it may connect
        threading.Thread(target=_end_with_parent, daemon=True).start()
        while True:
            connection, _ = listening.accept()
            if os.fork() == 0:
                listening.close()
                _answer(connection, base)
            connection.close()


def _end_with_parent() -> None:
    sys.stdin.read()
    os._exit(0)


def _answer(connection: socket.socket, base: list[str]) -> None:
    """In a fork: become the command that was asked for, and send its status."""
    status = 1
    try:
        first, streams, _, _ = socket.recv_fds(connection, 65536, 3)
        while not first.endswith(b"\n"):
            first += connection.recv(65536)
        asked: dict[str, Any] = json.loads(first)
        for stream, number in enumerate(streams):
            os.dup2(number, stream)
            os.close(number)
        connection.sendall(f"{os.getpid()}\n".encode())
        status = _run(asked, base)
    finally:
        for output in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                output.flush()
        connection.sendall(f"{status}\n".encode())
        os._exit(status)


def _run(asked: dict[str, Any], base: list[str]) -> int:
    os.chdir(asked["folder"])
    os.environ.clear()
    os.environ.update(asked["environment"])
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    given = os.environ.get("PYTHONPATH", "")
    sys.path[:] = [*filter(None, given.split(os.pathsep)), *base]
    name, arguments = asked["command"], asked["arguments"]
    sys.argv = [name, *arguments]
    try:
        if name in MAIN:
            code = import_module(MAIN[name]).main()
        elif arguments[0] == "-c":  # python -c CODE
            code = None
            exec(arguments[1], {"__name__": "__main__"})
        else:  # python -m MODULE ARGUMENTS, or python FILE ARGUMENTS
            module = arguments[0] == "-m"
            sys.argv = arguments[module:]
            run = partial(runpy.run_module, alter_sys=True) if module else runpy.run_path
            code = run(sys.argv[0], run_name="__main__") and 0
    except SystemExit as ended:
        code = ended.code
    except KeyboardInterrupt:
        return 130
    except BaseException:
        import traceback

        traceback.print_exc()
        return 1
    if isinstance(code, str):
        print(code, file=sys.stderr)
        return 1
    return int(code or 0)


if __name__ == "__main__":
    serve(sys.argv[1])
