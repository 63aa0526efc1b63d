"""A kind of claim or figure is one module: a copy of the package gets a toy of each, and finds them."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

CLAIM = '''"""A line of an even number of cells."""

from collections.abc import Iterator
from typing import Literal

from pipeline.reporting.judging.claim_test import OfOneLine, Outcome, Rows
from pipeline.reporting.printed import PrintedTables


class Even(OfOneLine):
    """The line has an even number of cells."""

    kind: Literal["even"]

    def ours(self, rows: Rows, paper: PrintedTables) -> Iterator[Outcome]:
        """By those run."""
        row = rows[self.of]
        count = len(row.cells) if row else 0
        yield Outcome("fails" if count % 2 else "holds", f"{count} cells of {paper.lines[self.of].label}")
'''

FIGURE = '''"""The table's name as a figure."""

from pipeline.reporting.results import TableResult

SUFFIX = "toy"
TITLE = "A toy of {}"
CAPTION = "Drawn by a toy."


def draw(result: TableResult) -> str | None:
    """A text."""
    return f\'<svg viewBox="0 0 9 9" width="1"><text>toy of {result.name}</text></svg>\'
'''

PAPER = """
title: A paper of toys
tables:
  t1:
    name: Table 1
    title: one line
    axis: privacy budget
    columns: [epsilon=1]
    figures: [toy]
    lines: [{key: one, label: One}]
claims:
  - {key: even, says: it is even, where: Section 1, tests: [{kind: even, of: t1/one}]}
"""

RENDER = """
import sys
from pathlib import Path
from reporting.made_up import dpsgd
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
    (reporting / "papers/toys.yaml").write_text(PAPER)
    project = tmp_path / "project"
    env = {**os.environ, "PYTHONPATH": f"{copy}:{copy / 'tests'}"}
    subprocess.run([sys.executable, "-c", RENDER, str(project)], env=env, cwd=copy, check=True)
    page = (project / "reports/papers/toys.html").read_text(encoding="utf-8")
    assert "7 cells of One" in page
    assert "not reproduced" in page
    assert "Drawn by a toy." in page
    assert 'aria-label="A toy of Table 1"' in page
    assert "toy of toys-t1" in (project / "reports/figures/toys-t1-toy.svg").read_text()
