from pathlib import Path

import pytest

from dprepro.pipeline.reporting import report
from tests.reporting.made_up import dpsgd


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """First page of the report on the whole example, in a folder of its own."""
    root = tmp_path_factory.mktemp("project")
    return report.write(dpsgd.fill(root), root)
