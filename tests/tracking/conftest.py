"""What tests of MLflow's store share."""

import shutil
from pathlib import Path

import pytest

from pipeline.tracking import store


@pytest.fixture
def root(tmp_path: Path, empty_store: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with an empty store of its own; the current one."""
    monkeypatch.delenv(store.STORE_ENV, raising=False)
    monkeypatch.chdir(tmp_path)
    shutil.copy(empty_store, tmp_path / store.STORE)
    return tmp_path
