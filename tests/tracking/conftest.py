"""What tests of MLflow's store share."""

from pathlib import Path

import pytest
from mlflow import MlflowClient


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database as MLflow makes it, once for all tests: the migration takes seconds."""
    path = tmp_path_factory.mktemp("store") / "mlflow.db"
    MlflowClient(f"sqlite:///{path}").search_experiments()
    return path
