"""A kind of claim or figure is one module: a laboratory gets a toy of each, and finds them."""

import os
import subprocess
import sys
from pathlib import Path

from tests.reporting.kinds import CLAIM, FIGURE, PAPER

ROOT = Path(__file__).parents[2]

RENDER = """
import sys
from pathlib import Path
from dprepro.pipeline.extensions import use
from tests.reporting.made_up import dpsgd
from dprepro.pipeline.reporting import report
root = Path(sys.argv[1])
use(["lab"], root)
row = {"paper": "toys", "table": "t1", "line": "one"}
declared = dpsgd.settings(**{key: row if key == dpsgd.PLAIN else {} for key in dpsgd.LABELS})
dpsgd.put(dpsgd.record(dpsgd.PLAIN, declared), root)
report.write(declared, root)
import dprepro.pipeline.tracking.publishing
assert "torch" not in sys.modules, "to report and to publish takes no torch, which takes seconds to import"
"""


def test_a_kind_of_claim_and_a_kind_of_figure_are_one_module_each(tmp_path: Path) -> None:
    files = {"lab/claims/even.py": CLAIM, "lab/figures/toy.py": FIGURE, "papers/toys.yaml": PAPER}
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(text)
    env = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"}
    subprocess.run([sys.executable, "-c", RENDER, str(tmp_path)], env=env, cwd=ROOT, check=True)
    page = (tmp_path / "reports/papers/toys.html").read_text(encoding="utf-8")
    assert "7 cells of One" in page
    assert "not reproduced" in page
    assert "Drawn by a toy." in page
    assert 'aria-label="A toy of Table 1"' in page
    assert "toy of toys-t1" in page
