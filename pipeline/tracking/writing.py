"""Runs as they were drawn -> MLflow, in as few calls as it takes."""

import json
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from mlflow import MlflowClient
from mlflow.entities import DatasetInput, InputTag, Metric, Param

from pipeline.results import records
from pipeline.tracking.drawing import PARENT, Drawn
from pipeline.tracking.races import tried

# What MLflow takes in one call (mlflow.utils.validation), of parameters and metrics together.
TOGETHER, PARAMETERS = 1000, 100
T = TypeVar("T")


def begin(client: MlflowClient, experiment: str, drawn: Drawn, parent: str | None = None) -> str:
    """Make an empty run; returns its id."""
    tags = drawn.tags if parent is None else {**drawn.tags, PARENT: parent}
    run = client.create_run(experiment, start_time=drawn.started, tags=tags, run_name=drawn.name)
    return str(run.info.run_id)


def fill(client: MlflowClient, experiment: str, run: str, drawn: Drawn) -> None:
    """Log what a run holds, make those below it, and end it when what it tells of ended."""
    for params, metrics in _batches(drawn):
        client.log_batch(run, metrics=metrics, params=params)
    if drawn.data_set is not None:
        inputs = [DatasetInput(drawn.data_set, [InputTag("mlflow.data.context", "training")])]
        tried(partial(client.log_inputs, run, datasets=inputs))
    for one in drawn.below:
        fill(client, experiment, begin(client, experiment, one, run), one)
    client.set_terminated(run, end_time=drawn.ended)


def log_files(client: MlflowClient, run: str, row: str, drawn: Drawn, root: Path) -> None:
    """Log what is kept of a row, and the digests of all that it comes from."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for path in (records.run_path, records.evaluation_path, records.ledger_path, records.audit_path):
            kept = path(row, root)
            if kept.exists():  # all have the row's name
                (folder / kept.parent.name).mkdir()
                shutil.copyfile(kept, folder / kept.parent.name / kept.name)
        (folder / "digests.json").write_text(json.dumps(drawn.digests, indent=1) + "\n")
        client.log_artifacts(run, name)


def _batches(drawn: Drawn) -> Iterator[tuple[list[Param], list[Metric]]]:
    params = [Param(name, value) for name, value in drawn.params.items()]
    for start in range(0, len(params) - PARAMETERS, PARAMETERS):
        yield params[start : start + PARAMETERS], []
    rest = params[max(0, (len(params) - 1) // PARAMETERS * PARAMETERS) :]
    first = TOGETHER - len(rest)
    yield rest, drawn.metrics[:first]
    for piece in _pieces(drawn.metrics[first:], TOGETHER):
        yield [], list(piece)


def _pieces(values: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    for start in range(0, len(values), size):
        yield values[start : start + size]
