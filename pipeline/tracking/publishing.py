"""Build the store of MLflow anew from the records, and put it in the old one's place."""

import logging
import os
import re
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from mlflow import MlflowClient
from mlflow.entities import Metric, Param
from mlflow.exceptions import MlflowException
from sqlalchemy import Engine, event
from sqlalchemy.exc import SQLAlchemyError

from dprepro.errors import UserError
from dprepro.pipeline.files import replacing
from dprepro.pipeline.tracking import views
from dprepro.pipeline.tracking.runs import RunSpec

STORE = Path("mlflow.db")
AT_ONCE = 1000  # metrics that MLflow takes in a call

Show = Callable[[str], None]  # called with the name of each result that is written


def publish(runs: Sequence[RunSpec], path: Path = STORE, show: Show = lambda name: None) -> dict[str, str]:
    """Write a store with ``runs`` only, and return the ids of the experiments by paper.

    The store is built in the system's folder of temporary files. Then one rename replaces the old store, so
    that a kill or a full disk leaves the old one.

    Raises:
        UserError: a disk is full, or the store can't be written.
    """
    for name in ("mlflow", "alembic"):  # they log their migrations
        logging.getLogger(name).setLevel(logging.WARNING)
    try:
        with TemporaryDirectory() as folder:
            built = Path(folder) / STORE.name
            with _without_waiting_for_the_disk():
                client = MlflowClient(address(built))
                experiments = {
                    paper: client.create_experiment(paper, tags=views.tags())
                    for paper in sorted({run.experiment for run in runs})
                }
                for run in runs:
                    parent = _write(client, experiments[run.experiment], run)
                    for seed in run.seeds:
                        _write(client, experiments[run.experiment], seed, {"mlflow.parentRunId": parent})
                    show(run.name)
            with replacing(path) as file, built.open("rb") as content:
                shutil.copyfileobj(content, file)
            for ending in ("-wal", "-shm", "-journal"):  # of a store that a server had open
                path.with_name(path.name + ending).unlink(missing_ok=True)
    except (MlflowException, SQLAlchemyError, sqlite3.Error) as problem:
        reason = str(problem).strip().split("\n", 1)[0]
        raise UserError(f"{path}: not written: {reason}") from problem
    return experiments


def address(path: Path = STORE) -> str:
    """MLflow's address of a store; relative if MLflow would misread characters of the absolute path."""
    whole = path.resolve()
    return f"sqlite:///{os.path.relpath(whole) if re.search('[?%#]', str(whole)) else whole}"


@contextmanager
def _without_waiting_for_the_disk() -> Iterator[None]:
    """Let SQLite not flush each of the thousands of transactions; the copy is flushed once."""

    def connected(connection: sqlite3.Connection, _: object) -> None:
        connection.execute("PRAGMA synchronous = OFF")

    event.listen(Engine, "connect", connected)
    try:
        yield
    finally:
        event.remove(Engine, "connect", connected)


def _write(client: MlflowClient, experiment: str, run: RunSpec, more: dict[str, str] | None = None) -> str:
    """Write a run and return its id."""
    started, ended = round(1000 * run.started), round(1000 * run.ended)
    tags = run.tags | (more or {})
    number = client.create_run(experiment, started, tags, run.name).info.run_id
    metrics = [Metric(name, value, ended, step) for name, value, step in run.metrics]
    params = [Param(name, value) for name, value in run.params.items()]
    for start in range(0, max(len(metrics), 1), AT_ONCE):
        client.log_batch(str(number), metrics[start : start + AT_ONCE], () if start else params)
    client.set_terminated(number, end_time=ended)
    return str(number)
