"""The project that faults are done to, made once."""

import os
import shutil
from pathlib import Path

import pytest

from tests.faults import project


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, before = tmp_path_factory.mktemp("made"), Path.cwd()
    os.chdir(folder)
    try:
        project.make()
    finally:
        os.chdir(before)
    return folder


@pytest.fixture
def own(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it, as the current folder."""
    folder = shutil.copytree(made, tmp_path / "own")
    monkeypatch.chdir(folder)
    return folder
