"""Where MLflow keeps its runs, and opening it: alone, where the store has a lock."""

import logging
import os
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException
from sqlalchemy import URL, Engine, NullPool, create_engine, event, make_url, text
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from pipeline.errors import UserError
from pipeline.files import beside, place, writing

STORE = Path("mlflow.db")
STORE_ENV = "MLFLOW_TRACKING_URI"
LOCK = 0x64707265_70726F00  # of PostgreSQL's 2^63 advisory locks: 'dprepro'


def address() -> str:
    """The store: MLFLOW_TRACKING_URI, or ``mlflow.db`` beside params.yaml."""
    return os.environ.get(STORE_ENV) or _sqlite_address(STORE)


def address_without_password() -> str:
    """The store as it is told to people, who may be anybody that reads a log: without user and password."""
    return re.sub(r"^([\w+]+://)[^/]*@", r"\1", address())


def _sqlite_address(path: Path) -> str:
    """That of a database file: from this folder where MLflow would take its characters for something else."""
    whole = path.resolve()
    return f"sqlite:///{os.path.relpath(whole) if re.search('[?%#]', str(whole)) else whole}"


def served() -> bool:
    """Whether the store is a server, which keeps the files of runs itself."""
    return address().startswith("http")


def has_lock() -> bool:
    """Whether who has the store open is the only publisher that has."""
    return _url().drivername.startswith(("sqlite", "postgresql"))


@contextmanager
def opened() -> Iterator[MlflowClient]:
    """A client whose failures are one clear line. Who opens a database waits for others that have it open.

    Raises:
        UserError: the store can't be reached or written.
    """
    # MLflow tells of its own migrations and of each finished run
    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.WARNING)
    url = _url()
    alone = {"sqlite": _sqlite, "postgresql": _postgresql}.get(url.drivername.partition("+")[0])
    try:
        with writing(STORE), alone(url) if alone else nullcontext():
            yield MlflowClient(address())
    except (MlflowException, SQLAlchemyError) as problem:
        reason = (
            str(problem).strip().split("\n", 1)[0].replace(address().rstrip("/"), address_without_password())
        )
        raise UserError(f"MLflow at {address_without_password()}: {reason}") from problem


def _url() -> URL:
    try:
        return make_url(address())
    except (ArgumentError, ValueError) as problem:
        raise UserError(
            f"{STORE_ENV}: {address_without_password()}: no address such as http://HOST:PORT"
        ) from problem


@contextmanager
def _postgresql(url: URL) -> Iterator[None]:
    """PostgreSQL's own lock, which ends with the connection: a killed publisher holds up nobody."""
    try:
        # a transaction would stand open, idle, until the end: servers end such connections
        engine = create_engine(url, poolclass=NullPool, isolation_level="AUTOCOMMIT")
    except ImportError as problem:
        raise UserError(
            f"{url.drivername}://: {problem}; `pip install 'dprepro[postgres]'` brings a driver, which an "
            "address that begins with postgresql+psycopg2:// asks for"
        ) from problem
    with engine.connect() as connection:
        connection.execute(text("SELECT pg_advisory_lock(:lock)"), {"lock": LOCK})
        yield


@contextmanager
def _sqlite(url: URL) -> Iterator[None]:
    """A lock beside the file, which is made where there is none, and is all there is afterwards."""
    path = Path(str(url.database))
    with FileLock(f"{path}.lock"):
        if not path.exists():
            building = beside(path)  # a migration takes seconds
            building.unlink(missing_ok=True)
            MlflowClient(_sqlite_address(building)).search_experiments()
            place(building, path)
        with closing(sqlite3.connect(path)) as database:
            try:
                database.execute("SELECT 1 FROM experiments")
            except sqlite3.DatabaseError as problem:  # MLflow would try for minutes to open it
                raise UserError(
                    f"{path}: is no MLflow store ({problem}); move it away, and `dprepro publish` makes one "
                    "from the records"
                ) from problem
            # Who reads (`dprepro ui`) doesn't stop who writes then, and commits need not wait for the disk.
            # It is refused while others read, and everything works without it.
            with suppress(sqlite3.Error):
                database.execute("PRAGMA journal_mode = WAL")
        yield
        with suppress(sqlite3.Error), closing(sqlite3.connect(path)) as database:
            database.execute("PRAGMA wal_checkpoint(TRUNCATE)")


@event.listens_for(Engine, "connect")
def _without_waiting(connection: Any, _: object) -> None:
    """Let commits not wait for the disk, which would be most of what publishing takes.

    They stay in order, so that a power cut costs the last runs at most; the digest that says that a row is
    whole comes after all of it, and the next `dprepro publish` writes the row again.
    """
    if isinstance(connection, sqlite3.Connection):
        if connection.execute("PRAGMA journal_mode").fetchone() == ("wal",):
            connection.execute("PRAGMA synchronous = NORMAL")  # in the other modes it isn't safe
    elif type(connection).__module__.startswith("psycopg"):
        with connection.cursor() as cursor:
            cursor.execute("SET synchronous_commit = off")
        connection.commit()
