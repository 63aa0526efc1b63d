from pathlib import Path

import pytest
from reporting import example

from pipeline.reporting import report
from pipeline.reporting.report import Report


@pytest.fixture(scope="session")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the whole example, and its report written."""
    return tmp_path_factory.mktemp("project")


@pytest.fixture(scope="session")
def written(root: Path) -> Report:
    return report.write(example.fill(root), root)
