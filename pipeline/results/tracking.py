"""Records -> MLflow. Records are the truth; runs are drawn from them, as often as one likes.

An experiment is a paper, a parent run a row, a nested run a replica. `publish` leaves alone what is there and
up to date, and replaces everything of a row that is not. A parent's `digest` tag is written last: a row
without it was cut short, and the next call makes it anew.
"""

import csv
import logging
import os
import sqlite3
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from statistics import fmean
from typing import Any, TypeVar

from filelock import FileLock

# MLflow reads these when it is imported: nothing is told to its makers, and a server that doesn't answer is
# one clear line, not minutes of waiting.
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "30")

import pandas as pd
from mlflow import MlflowClient
from mlflow.entities import Metric, Param, Run
from mlflow.exceptions import MlflowException
from sqlalchemy.exc import SQLAlchemyError

from pipeline.errors import UserError, writing
from pipeline.files import (
    beside,
    digest_file,
    digest_files,
    digest_json,
    place,
    write_text,
)
from pipeline.params import Settings
from pipeline.reporting import papers
from pipeline.reporting.judging.guarantees import guarantee
from pipeline.reporting.wording import VERDICTS
from pipeline.results import records
from pipeline.results.records import Record, Replica

STORE = Path("mlflow.db")
ARTIFACTS = Path("mlartifacts")
MARKER = Path("published.json")
STORE_ENV = "MLFLOW_TRACKING_URI"
# Part of every digest: raised when runs are to look different, it replaces those of older versions.
FORMAT = 1
# What MLflow takes in one call (mlflow.utils.validation: 1000 metrics, 100 parameters).
METRICS, PARAMETERS = 1000, 100
LONGEST = 500  # of a parameter's text, in every store MLflow has
# Without it MLflow takes an experiment for one on language models and opens pages about their traces.
KIND = {"mlflow.experimentKind": "custom_model_development"}
T = TypeVar("T")


@dataclass(frozen=True)
class Published:
    """What `publish` did."""

    address: str
    written: tuple[str, ...]  # rows that were new or had changed
    unchanged: tuple[str, ...]


def address(root: Path = Path()) -> str:
    """The store: MLFLOW_TRACKING_URI, or ``mlflow.db`` beside params.yaml."""
    return os.environ.get(STORE_ENV) or f"sqlite:///{(root / STORE).resolve()}"


def declared(settings: Settings, root: Path = Path()) -> list[Record]:
    """The records of the rows and accounts in params.yaml that have been run, in its order."""
    found = (records.read(key, line, root) for key, line in settings.lines.items())
    return [record for record in found if record is not None]


def publish(found: Sequence[Record], root: Path = Path()) -> Published:
    """Bring MLflow up to date with ``found``, and write ``published.json``: the digest of what is published.

    Raises:
        UserError: the store can't be reached or written, or a history doesn't belong to its record.
    """
    done: dict[bool, list[str]] = {True: [], False: []}
    with _client(root) as client:
        experiments = _experiments(client, {record.paper for record in found}, root)
        for record in found:
            done[_publish_row(client, experiments[record.paper], record, root)].append(record.row)
    write_text(root / MARKER, digest_json({record.row: _digest(record, root) for record in found}) + "\n")
    return Published(address(root), tuple(done[True]), tuple(done[False]))


def unpublished(found: Sequence[Record], root: Path = Path()) -> list[str]:
    """Rows whose runs in MLflow are missing, or are not drawn from the records there are.

    Raises:
        UserError: as `publish`.
    """
    with _client(root) as client:
        numbers = {one.name: one.experiment_id for one in client.search_experiments(view_type=3)}
        there = {
            run.data.tags.get("digest")
            for paper in {record.paper for record in found} & numbers.keys()
            for run in _runs(client, numbers[paper], "tags.kind = 'row'")
        }
    return [record.row for record in found if _digest(record, root) not in there]


def publish_tables(
    paper: str, files: Sequence[Path], tables: dict[str, pd.DataFrame], root: Path = Path()
) -> bool:
    """Log a paper's report to its experiment: one run with ``files`` and ``tables``. False: it was there.

    Raises:
        UserError: the store can't be reached or written.
    """
    digest = digest_json([FORMAT, digest_files(root, files)])
    with _client(root) as client:
        experiment = _experiments(client, {paper}, root)[paper]
        old = _runs(client, experiment, "tags.report = 'true'")
        if [run.data.tags.get("digest") for run in old] == [digest]:
            return False
        _delete(client, old)
        run = client.create_run(experiment, tags={"report": "true", "paper": paper}, run_name="report")
        for name, table in tables.items():
            # MLflow looks for pictures among the columns of objects, and is slow to learn of pandas' texts
            client.log_table(run.info.run_id, table.astype(object), f"{name}.json")
        for path in files:
            client.log_artifact(run.info.run_id, str(path))
        client.set_terminated(run.info.run_id)
        client.set_tag(run.info.run_id, "digest", digest)
    return True


def experiments(root: Path = Path()) -> dict[str, str]:
    """Paper -> number of its experiment, of all that are there."""
    with _client(root) as client:
        return _experiments(client, set(), root)


# -- the store ---------------------------------------------------------------------------------------


@contextmanager
def _client(root: Path) -> Iterator[MlflowClient]:
    """A client that nobody else on this machine writes beside, and whose failures are one clear line."""
    # MLflow tells of its own migrations and of each finished run
    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.WARNING)
    where = address(root)
    # Two that make a database at once crash in its migration, and two that publish would double every run.
    with writing(root), FileLock(root / f"{STORE}.lock"):
        try:
            if STORE_ENV not in os.environ:
                _make_store(root / STORE)
            yield MlflowClient(where)
        except (MlflowException, SQLAlchemyError) as problem:
            raise UserError(f"MLflow at {where}: {str(problem).splitlines()[0]}") from problem


def _make_store(path: Path) -> None:
    """Make MLflow's database where there is none: beside its place, because a migration takes seconds.

    A store in which no experiment is was being made when an older version of this was killed; it can hold no
    run, and MLflow could never open it.
    """
    if path.exists() and _half_made(path):
        for left in (path, path.with_name(f"{path.name}-journal")):
            left.unlink(missing_ok=True)
    if path.exists():
        return
    building = beside(path)
    building.unlink(missing_ok=True)
    MlflowClient(f"sqlite:///{building.resolve()}").search_experiments()
    place(building, path)


def _half_made(path: Path) -> bool:
    with closing(sqlite3.connect(path)) as database:
        try:
            return database.execute("SELECT 1 FROM experiments").fetchone() is None
        except sqlite3.OperationalError as problem:
            return "no such table" in str(problem)
        except sqlite3.DatabaseError:
            return False  # no database at all, which somebody else may want back


def _experiments(client: MlflowClient, needed: set[str], root: Path) -> dict[str, str]:
    """Paper -> number of its experiment.

    Those of all known papers are made together, so that the numbers in the report's links are there.
    Artifacts of a database lie beside it; a server knows its own place for them.
    """
    local = address(root).startswith("sqlite:")
    there = {one.name: one for one in client.search_experiments(view_type=3)}
    numbers = {}
    for paper in [*papers.names(), *sorted(needed - set(papers.names()))]:
        place = (root / ARTIFACTS / paper).resolve().as_uri() if local else None
        if paper not in there:
            numbers[paper] = client.create_experiment(paper, artifact_location=place, tags=KIND)
            continue
        one = there[paper]
        if place and one.artifact_location != place:
            raise UserError(
                f"{address(root)}: keeps its files in {one.artifact_location}, not here, as after a move; "
                f"delete {STORE} and run `dprepro publish`, which makes it anew from the records"
            )
        if one.lifecycle_stage == "deleted":
            client.restore_experiment(one.experiment_id)
        numbers[paper] = one.experiment_id
    return numbers


def _runs(client: MlflowClient, experiment: str, wanted: str) -> list[Run]:
    found: list[Run] = []
    token = None
    while True:
        page = client.search_runs([experiment], wanted, page_token=token)
        found += page
        token = page.token
        if not token:
            return found


def _delete(client: MlflowClient, runs: Sequence[Run]) -> None:
    """Mark runs deleted, parents first: what a crash leaves behind is then a row without a digest."""
    for run in sorted(runs, key=lambda run: "mlflow.parentRunId" in run.data.tags):
        client.delete_run(run.info.run_id)


# -- a row -------------------------------------------------------------------------------------------


def _digest(record: Record, root: Path) -> str:
    """Digest of what a row's runs are drawn from.

    Raises:
        UserError: the history is not the one the record was written with.
    """
    path = records.history_path(record.row, root)
    history = digest_file(path) if path.exists() else None
    if history not in (None, record.history):
        raise UserError(
            f"{path}: does not belong to {records.run_path(record.row, root)}; "
            f"`git checkout {path}` brings the right one back"
        )
    return digest_json([FORMAT, record.digest(), history])


def _publish_row(client: MlflowClient, experiment: str, record: Record, root: Path) -> bool:
    """Draw a row's runs anew unless they are there and up to date; True: they were drawn."""
    digest = _digest(record, root)
    old = _runs(client, experiment, f"tags.row = '{record.row}'")
    if digest in [run.data.tags.get("digest") for run in old]:
        return False
    _delete(client, old)
    curves = _curves(record, root)
    common = _common_tags(record)
    parent = client.create_run(
        experiment,
        start_time=_milliseconds(min((one.started for one in record.replicas if one.started), default=None)),
        tags={**common, "kind": "row", "privacy": _privacy(record.replicas, record)},
        run_name=record.row,
    ).info.run_id
    for replica in record.replicas:
        _publish_replica(
            client, experiment, parent, record, replica, common, curves[replica.level, replica.seed]
        )
    ended = _milliseconds(max((one.ended for one in record.replicas if one.ended), default=None))
    values = [Metric(*one, ended or 0, 0) for one in _row_metrics(record)]
    _log(client, parent, _row_parameters(record), values)
    for path in (records.run_path, records.evaluation_path, records.ledger_path, records.audit_path):
        if (kept := path(record.row, root)).exists():
            client.log_artifact(parent, str(kept), kept.parent.name)  # all have the row's name
    client.set_terminated(parent, end_time=ended)
    client.set_tag(parent, "digest", digest)
    return True


def _publish_replica(
    client: MlflowClient,
    experiment: str,
    parent: str,
    record: Record,
    replica: Replica,
    common: dict[str, str],
    curves: list[tuple[str, int, float]],
) -> None:
    run = client.create_run(
        experiment,
        start_time=_milliseconds(replica.started),
        tags={
            **common,
            "kind": "replica",
            "mlflow.parentRunId": parent,
            "replica": f"{record.row}/{replica.level}/{replica.seed}",
            "level": replica.level,
            "seed": str(replica.seed),
            "privacy": _privacy([replica], record),
        },
        run_name=f"{replica.level}, seed {replica.seed}",
    ).info.run_id
    curves = [*curves, *(("epsilon_spent", step, value) for step, value in replica.ledger.spent)]
    last = max((step for _, step, _ in curves), default=0)
    # Only start and end are known: steps in between are taken as equally long. An account has neither.
    started, ended = replica.started or 0.0, replica.ended or 0.0
    pace = (ended - started) / max(last, 1)
    metrics = [
        Metric(name, value, _milliseconds(started + step * pace) or 0, step) for name, step, value in curves
    ]
    finished = _milliseconds(replica.ended)
    metrics += [Metric(name, value, finished or 0, last) for name, value in _final(replica).items()]
    parameters = {
        **_row_parameters(record),
        **_flat(replica.settings),
        "level": replica.level,
        "seed": replica.seed,
    }
    _log(client, run, parameters, metrics)
    client.set_terminated(run, end_time=finished)


def _privacy(replicas: Sequence[Replica], record: Record) -> str:
    """What their worst epsilon is worth, to stand beside every one."""
    return VERDICTS[guarantee(replicas, record.provenance.reproducible).state]


def _final(replica: Replica) -> dict[str, float]:
    """What a replica ended with."""
    ledger = replica.ledger
    spent = {
        "epsilon_claimed": ledger.claimed,
        "epsilon_accounted": ledger.accounted,
        "epsilon_shown": ledger.shown,
        "epsilon_audited": max((one.largest for one in replica.attacks if one.whole), default=None),
        "mu": ledger.mu,
    }
    return {
        **replica.metrics,
        **{name: value for name, value in spent.items() if value is not None},
        "seconds": replica.seconds,
    }


def _row_metrics(record: Record) -> Iterator[tuple[str, float]]:
    """Means over seeds, so that whole rows can be compared: ``test_accuracy/epsilon 3``."""
    values = defaultdict(list)
    for replica in record.replicas:
        for name, value in replica.metrics.items():
            # '=' is not allowed in the name of a metric
            values[f"{name}/{replica.level.replace('=', ' ')}"].append(value)
    for name, found in values.items():
        yield name, fmean(found)


def _row_parameters(record: Record) -> dict[str, Any]:
    return {"data": record.data, "method": record.method, **_flat(record.model, "model.")}


def _common_tags(record: Record) -> dict[str, str]:
    """What every run of a row can be searched by."""
    made = record.provenance
    tags = {
        "row": record.row,
        "paper": record.paper,
        "table": record.table,
        "line": record.label,
        "budget": record.budget,
        "edition": ", ".join(f"{raw} {name}" for raw, name in sorted(made.edition.items())),
        "record": record.digest(),
        "config": made.config,
        "code": made.code,
        "device": made.device,
        "reproducible": str(made.reproducible).lower(),
        "mlflow.source.name": made.command,
        "mlflow.source.type": "LOCAL",
        **{f"data.{name}": digest for name, digest in made.data.items()},
    }
    if made.revision is not None:
        tags |= {"revision": made.revision, "mlflow.source.git.commit": made.revision}
    if made.adopted is not None:
        tags["adopted"] = made.adopted
    return tags


def _curves(record: Record, root: Path) -> dict[tuple[str, int], list[tuple[str, int, float]]]:
    """(level, seed) -> (metric, step, value) of the row's history; nothing where there is none."""
    found: dict[tuple[str, int], list[tuple[str, int, float]]] = defaultdict(list)
    path = records.history_path(record.row, root)
    if not path.exists():
        return found
    with path.open(newline="", encoding="utf-8") as file:
        for line in csv.DictReader(file):
            if line["metric"].startswith(records.RELEVANCE):
                continue  # MLflow would draw a chart for every pixel; the report shows the picture
            found[line["level"], int(line["seed"])].append(
                (line["metric"], int(line["step"]), float(line["value"]))
            )
    return found


def _log(client: MlflowClient, run: str, parameters: dict[str, Any], metrics: list[Metric]) -> None:
    """Log in pieces that MLflow takes. Values that are no number have no place in a curve."""
    texts = [Param(name, str(value)[:LONGEST]) for name, value in parameters.items()]
    for part in _pieces(texts, PARAMETERS):
        client.log_batch(run, params=part)
    for piece in _pieces([metric for metric in metrics if isfinite(metric.value)], METRICS):
        client.log_batch(run, metrics=piece)


def _pieces(values: list[T], size: int) -> Iterator[list[T]]:
    for start in range(0, len(values), size):
        yield values[start : start + size]


def _flat(value: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings as ``a.b``."""
    found: dict[str, Any] = {}
    for name, inner in value.items():
        found |= _flat(inner, f"{prefix}{name}.") if isinstance(inner, dict) else {f"{prefix}{name}": inner}
    return found


def _milliseconds(seconds: float | None) -> int | None:
    return None if seconds is None else round(1000 * seconds)
