"""What tests of MLflow's store share."""

import shutil
from pathlib import Path

import pytest
from mlflow import MlflowClient

from pipeline.tracking import store


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database as MLflow makes it, once for all tests: the migration takes seconds."""
    path = tmp_path_factory.mktemp("store") / "mlflow.db"
    MlflowClient(f"sqlite:///{path}").search_experiments()
    return path


@pytest.fixture
def root(tmp_path: Path, empty_store: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with an empty store of its own."""
    monkeypatch.delenv(store.STORE_ENV, raising=False)
    shutil.copy(empty_store, tmp_path / store.STORE)
    return tmp_path
