"""What is committed of the example: its ledgers are those that its runs and settings come to."""

import re
import shutil
import subprocess
from pathlib import Path

from tests.commands import typed
from tests.scattering.conftest import EXAMPLE

ROW = "tramer-mnist-linear"


def test_committed_ledgers_verify_and_a_changed_noise_is_noticed(tmp_path: Path) -> None:
    shutil.copy(EXAMPLE / "params.yaml", tmp_path)
    for name in ("papers", "lab", "reports"):
        shutil.copytree(EXAMPLE / name, tmp_path / name)
    assert re.search(f"{ROW}: .*ok", typed("dprepro verify", tmp_path))
    # as if the statistics of that row had been released without a trace
    run = tmp_path / f"reports/trainings/{ROW}.jsonl"
    text = run.read_text()
    assert "5.656854" in text
    run.write_text(re.sub(r',"first_release":[^,}]*', "", text))
    for path in tmp_path.glob("reports/*/*.json*"):
        if path.stem != ROW:
            path.unlink()
    assert f"{ROW}: WRONG" in typed("dprepro verify", tmp_path, fails=True)


def test_on_a_clone_dvc_makes_nothing_anew_that_is_committed(tmp_path: Path) -> None:
    ignore = shutil.ignore_patterns("data", "runs", "*.npz", "cache", "tmp", "__pycache__")
    clone = shutil.copytree(EXAMPLE, tmp_path / "scattering", ignore=ignore)
    subprocess.run(["git", "init", "-q"], cwd=clone, check=True)
    trained = [path.stem for path in sorted(EXAMPLE.glob("reports/trainings/*"))]
    assert trained
    targets = [f"{stage}@{row}" for row in trained for stage in ("evaluate", "ledger", "audit")]
    said = typed(f"dvc repro --allow-missing --dry {' '.join(targets)}", clone)
    assert set(re.findall(r"Running stage '([^']+)'", said)) <= {"identity"}
    assert all(f"Stage 'train@{row}' didn't change" in said for row in trained)
