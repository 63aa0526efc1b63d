"""Networks that are logged to MLflow predict as what was measured."""

import mlflow
import mlflow.pytorch
import numpy as np
import pytest
import torch
from mlflow import MlflowClient

from pipeline.data import prepared
from pipeline.reporting.vocabulary import words
from pipeline.results import records
from pipeline.tracking.models import publish_models, with_weights
from pipeline.tracking.notes import NOTE
from pipeline.tracking.publishing import declared, publish
from pipeline.tracking.store import address
from tests.faults import project
from tests.there import there


@pytest.mark.usefixtures("root")
def test_a_logged_network_has_the_measured_accuracy() -> None:
    project.make()
    settings = project.settings()
    rows = declared(settings)
    publish(rows, settings)
    assert [record.row for record in with_weights(rows)] == [project.ROW]
    assert publish_models(rows, settings) == 1
    assert publish_models(rows, settings) == 0

    client = MlflowClient(address())
    experiment = there(client.get_experiment_by_name("davody2020"))
    (run,) = client.search_runs(
        [experiment.experiment_id], f"tags.kind = 'level' and tags.row = '{project.ROW}'"
    )
    (output,) = run.outputs.model_outputs
    mlflow.set_tracking_uri(address())
    network = mlflow.pytorch.load_model(f"models:/{output.model_id}")
    test = prepared.load("mnist").splits["test"]
    predicted = network(torch.from_numpy(np.array(test.inputs))).numpy()
    (measured,) = records.read_evaluation(project.ROW).replicas
    assert (predicted == test.labels).mean() == pytest.approx(measured.metrics["test_accuracy"])

    # what an export would say of its privacy
    (ledger,) = (replica.ledger for replica in records.read_ledgers(project.ROW).replicas)
    note = client.get_logged_model(output.model_id).tags[NOTE]
    assert "No differential privacy is proven" in note
    assert "DOES NOT HOLD" in note
    assert f"| mechanism | `{ledger.event}` |" in note
    assert all(words(reason) in note for reason in ledger.not_covered)

    signature = there(mlflow.models.get_model_info(f"models:/{output.model_id}").signature)
    assert signature.inputs.inputs[0].shape == (-1, 1, 28, 28)
    assert signature.outputs.inputs[0].shape == (-1,)
