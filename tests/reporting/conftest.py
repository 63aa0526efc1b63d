from pathlib import Path

import pytest

from dprepro.pipeline.params import load
from dprepro.pipeline.reporting import report
from dprepro.pipeline.reporting.facts import PaperResult
from dprepro.pipeline.reporting.gather import gather
from dprepro.pipeline.reporting.report import Report
from tests.reporting.made_up import dpsgd


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """The report on the whole example, in a folder of its own."""
    root = tmp_path_factory.mktemp("project")
    return report.write(dpsgd.fill(root), root)


@pytest.fixture(scope="session")
def papers_here() -> list[PaperResult]:
    """This laboratory's own results."""
    root = Path(__file__).parents[2]
    return gather(load(root / "params.yaml"), root)
