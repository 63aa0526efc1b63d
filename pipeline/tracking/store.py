"""Where MLflow keeps its runs, and opening it."""

import logging
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from mlflow import MlflowClient
from mlflow.exceptions import MlflowException
from sqlalchemy.exc import SQLAlchemyError

from pipeline.errors import UserError, writing
from pipeline.files import beside, place
from pipeline.tracking.durability import not_waiting
from pipeline.tracking.turns import one_at_a_time

STORE = Path("mlflow.db")
ARTIFACTS = Path("mlartifacts")
STORE_ENV = "MLFLOW_TRACKING_URI"


def address(root: Path = Path()) -> str:
    """The store: MLFLOW_TRACKING_URI, or ``mlflow.db`` beside params.yaml."""
    return os.environ.get(STORE_ENV) or f"sqlite:///{(root / STORE).resolve()}"


def served(root: Path = Path()) -> bool:
    """Whether the store is a server, which keeps the files of runs itself."""
    return address(root).startswith("http")


@contextmanager
def opened(root: Path = Path()) -> Iterator[MlflowClient]:
    """A client whose failures are one clear line. Who opens a database waits for others that have it open.

    Raises:
        UserError: the store can't be reached or written.
    """
    # MLflow tells of its own migrations and of each finished run
    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.WARNING)
    where = address(root)
    own = STORE_ENV not in os.environ
    with writing(root):
        try:
            # two that make a database at once would crash in its migration
            with one_at_a_time(where), not_waiting():
                if own:
                    _make(root / STORE)
                yield MlflowClient(where)
                if own:
                    _tidy(root / STORE)
        except (MlflowException, SQLAlchemyError) as problem:
            raise UserError(f"MLflow at {_without_password(where)}: {_first_line(problem)}") from problem


def _first_line(problem: Exception) -> str:
    return str(problem).strip().split("\n", 1)[0]


def _without_password(where: str) -> str:
    scheme, separator, rest = where.partition("://")
    login, at, host = rest.rpartition("@")
    return f"{scheme}{separator}{login.partition(':')[0]}{at}{host}"


def _make(path: Path) -> None:
    """Make MLflow's database where there is none: beside its place, because a migration takes seconds.

    A store in which no experiment is was being made when an older version of this was killed; it can hold no
    run, and MLflow could never open it.
    """
    if path.exists() and _half_made(path):
        for ending in ("", "-journal", "-wal", "-shm"):
            path.with_name(path.name + ending).unlink(missing_ok=True)
    if not path.exists():
        building = beside(path)
        building.unlink(missing_ok=True)
        MlflowClient(f"sqlite:///{building.resolve()}").search_experiments()
        place(building, path)
    with closing(sqlite3.connect(path)) as database:
        # The file keeps to it from then on. Who reads (`dprepro ui`) doesn't stop who writes, and commits
        # need not wait for the disk. Without it everything works as well.
        _tell(database, "PRAGMA journal_mode = WAL")


def _tidy(path: Path) -> None:
    """Bring the log into the database, so that its one file is all there is."""
    with closing(sqlite3.connect(path)) as database:
        _tell(database, "PRAGMA wal_checkpoint(TRUNCATE)")


def _tell(database: sqlite3.Connection, what: str) -> None:
    """Ask for what makes things better and may be refused, as when others read."""
    try:
        database.execute(what)
    except sqlite3.Error:
        logging.getLogger(__name__).debug("%s: refused", what)


def _half_made(path: Path) -> bool:
    with closing(sqlite3.connect(path)) as database:
        try:
            return database.execute("SELECT 1 FROM experiments").fetchone() is None
        except sqlite3.OperationalError as problem:
            return "no such table" in str(problem)
        except sqlite3.DatabaseError:
            return False  # no database at all, which somebody else may want back
