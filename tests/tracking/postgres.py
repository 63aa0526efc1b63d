"""A PostgreSQL server of the test's own, in a temporary folder, reached through a socket in it."""

import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

USERS = ("postgres", "nobody")  # the server refuses to be root
FAST = ("-c", "fsync=off", "-c", "full_page_writes=off")  # for tests: nobody pulls the plug on them


def missing() -> str | None:
    """What is not here that it takes; None: all is here."""
    if importlib.util.find_spec("psycopg2") is None:
        return "no psycopg2; `pip install dprepro[postgres]` brings it"
    for name in ("initdb", "postgres"):
        if _binary(name) is None:
            return f"no {name}, on PATH or in /usr/lib/postgresql; PostgreSQL's server package brings it"
    if os.getuid() == 0 and _user() is None:
        return f"no user {' or '.join(USERS)}, and PostgreSQL refuses to run as root"
    return None


@contextmanager
def running(*options: str) -> Iterator[str]:
    """A server with an empty database; gives its address for SQLAlchemy.

    Raises:
        RuntimeError: it doesn't start; with what it said.
    """
    user = _user() if os.getuid() == 0 else None
    folder = Path(tempfile.mkdtemp(prefix="postgres-"))
    try:
        if user is not None:
            shutil.chown(folder, user)
        as_user: dict[str, Any] = {
            "user": user,
            "cwd": folder,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.STDOUT,
        }
        command: list[Any] = [_binary("initdb"), "-D", folder / "data", "-U", "postgres", "-A", "trust", "-N"]
        made = subprocess.run(command, **as_user)
        if made.returncode:
            raise RuntimeError(made.stdout)
        command = [_binary("postgres"), "-D", folder / "data", "-k", folder, "-c", "listen_addresses="]
        server = subprocess.Popen([*command, *options], **as_user)
        try:
            address = f"postgresql+psycopg2://postgres@/postgres?host={folder}"
            _wait(folder, server)
            yield address
        finally:
            server.send_signal(signal.SIGINT)  # whoever is connected is told to go
            server.wait(60)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _wait(folder: Path, server: "subprocess.Popen[str]") -> None:
    import psycopg2

    until = time.monotonic() + 60
    while True:
        try:
            psycopg2.connect(host=folder, user="postgres", dbname="postgres").close()
            return
        except psycopg2.OperationalError as problem:
            if server.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"{problem}: {server.stdout and server.stdout.read()}") from problem
            time.sleep(0.1)


def _binary(name: str) -> str | None:
    places = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    return shutil.which(name) or (str(places[-1]) if places else None)


def _user() -> str | None:
    known = {user.pw_name for user in pwd.getpwall()}
    return next((name for name in USERS if name in known), None)
