"""Publishers of one store take turns, where the store has a lock for it.

A database has: SQLite's is a file beside it, PostgreSQL's its own advisory lock, which ends with the
connection, so that a killed publisher holds up nobody. An MLflow server has none. There publishers do not
wait, and `publishing` alone sees to it that one of each run is left.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

from filelock import FileLock
from sqlalchemy import create_engine, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError
from sqlalchemy.pool import NullPool

from pipeline.errors import UserError

LOCK = 0x64707265_70726F00  # of PostgreSQL's 2^63 advisory locks: 'dprepro'


def one_at_a_time(address: str) -> AbstractContextManager[object]:
    """Wait until no other publisher has the store at ``address``, and have it while the block runs."""
    url = _database(address)
    if url is None:
        return nullcontext()
    if url.get_backend_name() == "sqlite" and url.database:
        return FileLock(Path(f"{url.database}.lock"))
    return _advisory(url) if url.get_backend_name() == "postgresql" else nullcontext()


def has_turns(address: str) -> bool:
    """Whether who has the store is alone in it, as far as publishers open it in the same way."""
    url = _database(address)
    return url is not None and url.get_backend_name() in ("sqlite", "postgresql")


def _database(address: str) -> URL | None:
    if "://" not in address or address.startswith(("http:", "https:")):
        return None
    try:
        return make_url(address)
    except ArgumentError:
        return None  # MLflow says what is wrong with it


@contextmanager
def _advisory(url: URL) -> Iterator[None]:
    try:
        # a transaction of its own would stand open, idle, until the end: servers end such connections
        engine = create_engine(url, poolclass=NullPool, isolation_level="AUTOCOMMIT")
    except ImportError as problem:
        raise UserError(
            f"{url.drivername}://: {problem}; `pip install dprepro[postgres]` brings a driver, which an "
            "address that begins with postgresql+psycopg2:// asks for"
        ) from problem
    with engine.connect() as connection:
        connection.execute(text("SELECT pg_advisory_lock(:lock)"), {"lock": LOCK})
        yield
