from pathlib import Path

import pytest

from pipeline.reporting import report
from pipeline.reporting.judging.assess import ClaimResult
from pipeline.reporting.report import Report
from pipeline.reporting.results import PaperResult, TableResult
from tests.reporting import lookup
from tests.reporting.made_up import dpsgd


@pytest.fixture(scope="session")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the whole example, and its report written."""
    return tmp_path_factory.mktemp("project")


@pytest.fixture(scope="session")
def written(root: Path) -> Report:
    return report.write(dpsgd.fill(root), root)


@pytest.fixture
def table(written: Report) -> TableResult:
    """The example's one table, Table 5."""
    return written.papers[0].tables[0]


# Of a module's own example, which its `MADE_UP` fills a folder with: its one paper, tables and claims


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("project")


@pytest.fixture(scope="module")
def report_of(request: pytest.FixtureRequest, project: Path) -> Report:
    return report.write(request.module.MADE_UP.fill(project), project)


@pytest.fixture
def result(report_of: Report) -> PaperResult:
    return report_of.papers[0]


@pytest.fixture
def tables_of(result: PaperResult) -> dict[str, TableResult]:
    return {table.name.removeprefix(f"{table.paper}-"): table for table in result.tables}


@pytest.fixture
def claims_of(result: PaperResult) -> dict[str, ClaimResult]:
    return lookup.claims(result)


@pytest.fixture
def text(report_of: Report) -> str:
    """The paper's page as read."""
    return lookup.text(report_of)
