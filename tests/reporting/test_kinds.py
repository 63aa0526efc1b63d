"""A kind of claim or figure is one module: a copy of the package gets a toy of each, and finds them."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.reporting.kinds import CLAIM, FIGURE, PAPER

ROOT = Path(__file__).parents[2]

RENDER = """
import sys
from pathlib import Path
from tests.reporting.made_up import dpsgd
from pipeline.reporting import report
row = {"paper": "toys", "table": "t1", "label": "One"}
declared = dpsgd.settings(**{key: row if key == dpsgd.PLAIN else {} for key in dpsgd.LABELS})
root = Path(sys.argv[1])
dpsgd.put(dpsgd.record(dpsgd.PLAIN, declared), root)
report.write(declared, root)
"""


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The package and these tests, somewhere else."""
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "pipeline", tmp_path / "copy/pipeline", ignore=ignored)
    shutil.copytree(ROOT / "tests", tmp_path / "copy/tests", ignore=ignored)
    return tmp_path / "copy"


def test_a_kind_of_claim_and_a_kind_of_figure_are_one_module_each(tmp_path: Path, copy: Path) -> None:
    reporting = copy / "pipeline/reporting"
    (reporting / "claims/even.py").write_text(CLAIM)
    (reporting / "figures/toy.py").write_text(FIGURE)
    project = tmp_path / "project"
    (project / "papers").mkdir(parents=True)
    (project / "papers/toys.yaml").write_text(PAPER)
    env = {**os.environ, "PYTHONPATH": f"{copy}:{copy / 'tests'}"}
    subprocess.run([sys.executable, "-c", RENDER, str(project)], env=env, cwd=copy, check=True)
    page = (project / "reports/papers/toys.html").read_text(encoding="utf-8")
    assert "7 cells of One" in page
    assert "not reproduced" in page
    assert "Drawn by a toy." in page
    assert 'aria-label="A toy of Table 1"' in page
    assert "toy of toys-t1" in (project / "reports/figures/toys-t1-toy.svg").read_text()
