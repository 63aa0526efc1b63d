"""Trained networks in MLflow: programs that predict as the method does, with what they take and give.

Each is the method's own prediction with one replica's weights, public statistics included, as `torch.export`
writes it: whoever loads it needs torch and nothing of this project.
"""

import tempfile
from collections.abc import Sequence
from pathlib import Path

import mlflow.pytorch
import numpy as np
import torch
from mlflow import MlflowClient
from mlflow.entities import LoggedModelOutput, Run
from mlflow.models import ModelSignature
from mlflow.types import Schema, TensorSpec

from pipeline.data import prepared
from pipeline.data.prepared import Prepared
from pipeline.errors import UserError
from pipeline.methods.base import Execution, Method
from pipeline.methods.registry import build_method
from pipeline.methods.rooms import method_settings
from pipeline.params import Settings
from pipeline.privacy.gradients import Tensors
from pipeline.results import records
from pipeline.results.schema import Record, Trained
from pipeline.results.weights import read_weights, weights_path
from pipeline.tracking import experiments
from pipeline.tracking.store import opened
from pipeline.tracking.upserting import Show, kept, publications
from pipeline.training.loop import Replica, make_task

CPU = Execution(torch.device("cpu"), replicas_at_once=1, physical=256)
EXPORTED, CHECKED = 2, 7  # examples that a network is exported with, and that the program is held to it with


class _Predicts(torch.nn.Module):
    """One replica's prediction."""

    def __init__(self, method: Method, network: Tensors):
        """``network``: tensors (1, ...) each."""
        super().__init__()
        self.method, self.network = method, network

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """(B,) classes of ``inputs`` (B, ...) as stored."""
        return self.method.predict(self.network, inputs)[0]


def with_weights(recorded: Sequence[Record], root: Path = Path()) -> list[str]:
    """The rows some of whose weights are here."""
    return [
        record.row
        for record in recorded
        if any(weights_path(record.row, one.level, one.seed, root).exists() for one in record.replicas)
    ]


def publish_models(
    recorded: Sequence[Record], settings: Settings, root: Path = Path(), show: Show | None = None
) -> int:
    """Log the networks whose weights are here to their published runs that have none; returns how many.

    Raises:
        UserError: a row's data isn't here, weights are damaged, or a network can't be exported.
    """
    rows = set(with_weights(recorded, root))
    logged = 0
    with opened(root) as client:
        there = experiments.existing(client)
        for record in recorded:
            if record.row in rows and record.paper in there:
                logged += _publish_row(client, there[record.paper].experiment_id, record, settings, root)
                if show is not None:
                    show(record.row)
    return logged


def _publish_row(
    client: MlflowClient, experiment: str, record: Record, settings: Settings, root: Path
) -> int:
    ran = records.read_run(record.row, root)
    there = publications(client, experiment, f"tags.row = '{record.row}'").get(record.row, {})
    published = kept(there)
    if ran is None or published is None:
        return 0
    data = prepared.load(record.data, root)
    replicas = {(one.level, str(one.seed)): one for one in ran.replicas}
    logged = 0
    for run in there[published]:
        replica = replicas.get((run.data.tags.get("level", ""), run.data.tags.get("seed", "")))
        if replica is None or (run.outputs is not None and run.outputs.model_outputs):
            continue
        if weights_path(record.row, replica.level, replica.seed, root).exists():
            _log(client, experiment, run, _predicts(record.row, replica, settings, data, root), data)
            logged += 1
    return logged


def _predicts(key: str, trained: Trained, settings: Settings, data: Prepared, root: Path) -> _Predicts:
    """A replica's prediction."""
    row = settings.row(key)
    path = weights_path(key, trained.level, trained.seed, root)
    weights = read_weights(path, trained.weights, CPU.device)
    member = Replica(
        trained.level, trained.seed, method_settings()[row.method].model_validate(trained.settings)
    )
    task = make_task([member], row.model, row.reproducible, data, CPU)
    method = build_method(row.method, task, [member.settings], row.model.normalization)
    stacked = {name: value[None] for name, value in weights.items()}
    with torch.no_grad():
        return _Predicts(method, method.network(stacked, 0)).eval()


def _log(client: MlflowClient, experiment: str, run: Run, predicts: _Predicts, data: Prepared) -> None:
    inputs, labels = data.splits["test"].inputs, data.splits["test"].labels
    signature = ModelSignature(
        inputs=Schema([TensorSpec(inputs.dtype, (-1, *inputs.shape[1:]), "inputs")]),
        outputs=Schema([TensorSpec(labels.dtype, (-1,), "classes")]),
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model"
        with torch.no_grad():
            mlflow.pytorch.save_model(
                predicts,
                str(path),
                signature=signature,
                input_example=np.array(inputs[:EXPORTED]),
                serialization_format="pt2",
                # what it takes is known, and finding it out would load every model in a process of its own
                pip_requirements=[f"torch=={torch.__version__.partition('+')[0]}"],
            )
            some = torch.from_numpy(np.array(inputs[:CHECKED]))
            if not torch.equal(mlflow.pytorch.load_model(str(path))(some), predicts(some)):
                raise UserError(f"{run.info.run_name}: can't be exported: its program predicts otherwise")
        model = client.create_logged_model(
            experiment, name=_model_name(run.info.run_name), source_run_id=run.info.run_id
        )
        client.log_model_artifacts(model.model_id, str(path))
    client.finalize_logged_model(model.model_id, "READY")
    client.log_outputs(run.info.run_id, [LoggedModelOutput(model.model_id, step=0)])


def _model_name(run: str) -> str:
    """A run's name without the signs that MLflow refuses in a model's."""
    return "".join(" " if sign in "/:.%\"'" else sign for sign in run)
