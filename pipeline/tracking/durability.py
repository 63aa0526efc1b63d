"""Commits that don't wait for the disk: a run is a handful of them, and waiting is most of what each takes.

Nothing is at stake. What was committed stays in order, so that a power cut costs the last runs at most; the
digest that says that a row is whole is written after all of it, and the next `dprepro publish` draws the row
again. SQLite keeps that order with its log of what is written (`PRAGMA journal_mode = WAL`) alone.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import event
from sqlalchemy.engine import Engine


@contextmanager
def not_waiting() -> Iterator[None]:
    """Tell connections to databases that are made while the block runs."""
    event.listen(Engine, "connect", _tell)
    try:
        yield
    finally:
        if event.contains(Engine, "connect", _tell):
            event.remove(Engine, "connect", _tell)


def _tell(connection: Any, _: object) -> None:
    if isinstance(connection, sqlite3.Connection):
        if connection.execute("PRAGMA journal_mode").fetchone() == ("wal",):
            connection.execute("PRAGMA synchronous = NORMAL")
    elif type(connection).__module__.startswith("psycopg"):
        connection.autocommit = True  # within a transaction it would end with that
        with connection.cursor() as cursor:
            cursor.execute("SET synchronous_commit = off")
        connection.autocommit = False
