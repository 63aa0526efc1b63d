from pathlib import Path

import pytest

from pipeline.params import load
from pipeline.reporting import report
from pipeline.reporting.facts import PaperResult
from pipeline.reporting.gather import gather
from pipeline.reporting.report import Report
from pipeline.reporting.results import TableResult
from tests.reporting.made_up import dpsgd


@pytest.fixture(scope="session")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the whole example, and its report written."""
    return tmp_path_factory.mktemp("project")


@pytest.fixture(scope="session")
def written(root: Path) -> Report:
    return report.write(dpsgd.fill(root), root)


@pytest.fixture(scope="session")
def papers_here() -> list[PaperResult]:
    """This laboratory's own results."""
    root = Path(__file__).parents[2]
    return gather(load(root / "params.yaml"), root)


@pytest.fixture
def table(written: Report) -> TableResult:
    """The example's one table, Table 5."""
    return written.papers[0].tables[0]
