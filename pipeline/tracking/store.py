"""Opening MLflow's store, by one publisher at a time."""

import logging
import os
import re
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException
from sqlalchemy import make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from dprepro.errors import UserError
from dprepro.pipeline.files import place, temporary_path, writing

STORE = Path("mlflow.db")
STORE_ENV = "MLFLOW_TRACKING_URI"


def address() -> str:
    """Address of the store: MLFLOW_TRACKING_URI, or ``mlflow.db`` beside params.yaml."""
    return os.environ.get(STORE_ENV) or _sqlite_address(STORE)


def address_without_password() -> str:
    """Address of the store without user and password, for messages and logs."""
    return re.sub(r"^([\w+]+://)[^/]*@", r"\1", address())


def _sqlite_address(path: Path) -> str:
    """Address of a database file; relative if MLflow would misread characters of the absolute path."""
    whole = path.resolve()
    return f"sqlite:///{os.path.relpath(whole) if re.search('[?%#]', str(whole)) else whole}"


def served() -> bool:
    """Return True if the store is a server, which keeps the files of runs itself."""
    return address().startswith("http")


@contextmanager
def opened() -> Iterator[MlflowClient]:
    """Open the store for one publisher; a second one prints a line and waits.

    Raises:
        UserError: the store can't be reached or written.
    """
    # MLflow logs its own migrations and each finished run
    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.WARNING)
    database = _database()
    try:
        with writing(STORE), _alone(database or STORE):
            if database is None:
                yield _client()
            else:
                _prepare(database)
                yield _client()
                # so that a full disk is an error here
                with closing(sqlite3.connect(database)) as connection:
                    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    except (MlflowException, SQLAlchemyError, sqlite3.Error) as problem:
        reason = (
            str(problem).strip().split("\n", 1)[0].replace(address().rstrip("/"), address_without_password())
        )
        raise UserError(f"MLflow at {address_without_password()}: {reason}") from problem


def _database() -> Path | None:
    """File of the SQLite database; None for another store."""
    try:
        url = make_url(address())
    except (ArgumentError, ValueError) as problem:
        raise UserError(
            f"{STORE_ENV}: {address_without_password()}: no address such as http://HOST:PORT"
        ) from problem
    return Path(str(url.database)) if url.drivername.startswith("sqlite") else None


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Hold the publishers' lock, a file beside the database ``path``."""
    lock = FileLock(f"{path}.lock")
    try:
        lock.acquire(blocking=False)
    except Timeout:
        print(f"{path}: another publisher is writing; waiting for it to finish", file=sys.stderr, flush=True)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _client() -> MlflowClient:
    try:
        return MlflowClient(address())
    except ImportError as problem:
        raise UserError(
            f"MLflow at {address_without_password()}: {problem}; `pip install 'dprepro[postgres]'` installs "
            "the driver of addresses that begin with postgresql+psycopg2://"
        ) from problem


def _prepare(path: Path) -> None:
    """Make the database file if it is missing, and check that it is a store of MLflow."""
    if not path.exists():
        building = temporary_path(path)  # because the migration takes seconds
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
        # In this mode readers (`dprepro ui`) don't block the writer. SQLite refuses the mode while others
        # read, and everything works without it.
        with suppress(sqlite3.Error):
            database.execute("PRAGMA journal_mode = WAL")
