"""The project that faults are done to, made once."""

import shutil
from pathlib import Path

import pytest

from tests.conftest import alone
from tests.faults import project


@pytest.fixture(scope="session")
def made() -> Path:
    """Nobody writes into it: all workers share it."""
    with alone() as shared, pytest.MonkeyPatch.context() as patch:
        folder, begun = shared / "made", shared / "begun"
        if not folder.exists():
            begun.mkdir()
            patch.chdir(begun)
            project.make()
            begun.rename(folder)
    return folder


@pytest.fixture
def workspace(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it, as the current folder."""
    folder = shutil.copytree(made, tmp_path / "own")
    monkeypatch.chdir(folder)
    return folder
