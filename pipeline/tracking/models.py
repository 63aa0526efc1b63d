"""Trained networks in MLflow: programs that predict as the method does, with what they take and give.

Each is the method's own prediction with one replica's weights, public statistics included, as `torch.export`
writes it: whoever loads it needs torch and nothing of this project. Its note is its privacy statement.
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
from pipeline.export.networks import Network, trained_network
from pipeline.export.privacy_statement import markdown, privacy_statement
from pipeline.ledgers.data_budget import budget_of
from pipeline.params import Settings
from pipeline.results import records
from pipeline.results.schema import Record
from pipeline.results.weights import weights_path
from pipeline.tracking import experiments
from pipeline.tracking.notes import NOTE
from pipeline.tracking.store import opened
from pipeline.tracking.upserting import Show, kept, publications

EXPORTED, CHECKED = 2, 7  # examples that a network is exported with, and that the program is held to it with


class _Predicts(torch.nn.Module):
    """The classes that one replica's network predicts, as a module to export."""

    def __init__(self, network: Network):
        """``network``: of the replica."""
        super().__init__()
        self.network = network

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """(B,) classes of ``inputs`` (B, ...) as stored."""
        return self.network.logits(inputs).argmax(-1)


def with_weights(recorded: Sequence[Record]) -> list[Record]:
    """The rows some of whose weights are here."""
    return [
        record
        for record in recorded
        if any(weights_path(record.row, *replica.key).exists() for replica in record.replicas)
    ]


def publish_models(recorded: Sequence[Record], settings: Settings, show: Show = lambda row: None) -> int:
    """Log the networks whose weights are here to their published runs that have none; returns how many.

    Raises:
        UserError: a row's data isn't here, weights are damaged, or a network can't be exported.
    """
    logged = 0
    with opened() as client:
        there = experiments.existing(client)
        for record in with_weights(recorded):
            if record.paper in there:
                logged += _publish_row(client, there[record.paper].experiment_id, record, settings)
                show(record.row)
    return logged


def _publish_row(client: MlflowClient, experiment: str, record: Record, settings: Settings) -> int:
    ran, ledgers = records.read_run(record.row), records.read_ledgers(record.row)
    there = publications(client, experiment, f"tags.row = '{record.row}'").get(record.row, {})
    published = kept(there)
    if ran is None or ledgers is None or published is None:
        return 0
    row, data = settings.row(record.row), prepared.load(record.data)
    trained = {(replica.level, str(replica.seed)): replica for replica in ran.replicas}
    replicas = {(replica.level, str(replica.seed)): replica for replica in record.replicas}
    logged = 0
    for run in there[published]:
        name = run.data.tags.get("level", ""), run.data.tags.get("seed", "")
        if name not in replicas or (run.outputs is not None and run.outputs.model_outputs):
            continue
        replica = trained[name]
        if weights_path(record.row, *replica.key).exists():
            network = trained_network(record.row, replica, row, data)
            budget = budget_of(record.data, settings)
            statement = markdown(privacy_statement(record, replicas[name], ledgers.versions, budget))
            _log(client, experiment, run, _Predicts(network).eval(), data, statement)
            logged += 1
    return logged


def _log(
    client: MlflowClient, experiment: str, run: Run, predicts: _Predicts, data: Prepared, statement: str
) -> None:
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
            experiment,
            name=_model_name(run.info.run_name),
            source_run_id=run.info.run_id,
            tags={NOTE: statement},
        )
        client.log_model_artifacts(model.model_id, str(path))
    client.finalize_logged_model(model.model_id, "READY")
    client.log_outputs(run.info.run_id, [LoggedModelOutput(model.model_id, step=0)])


def _model_name(run: str) -> str:
    """A run's name without the signs that MLflow refuses in a model's."""
    return "".join(" " if sign in "/:.%\"'" else sign for sign in run)
