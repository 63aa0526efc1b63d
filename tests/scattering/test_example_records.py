"""What is committed of the example: its ledgers are those that its runs and settings come to."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.scattering.conftest import EXAMPLE

HERE = ("params.yaml", "papers", "lab", "reports")


def test_committed_ledgers_verify_and_a_changed_noise_is_noticed(tmp_path: Path) -> None:
    if not list(EXAMPLE.glob("reports/ledgers/*.json")):
        pytest.skip("NO LEDGER OF THE EXAMPLE IS COMMITTED: nothing of it is trained yet")
    for name in HERE:
        path = EXAMPLE / name
        (shutil.copytree if path.is_dir() else shutil.copy)(path, tmp_path / name)
    command = [str(Path(sys.executable).parent / "dprepro"), "verify"]
    found = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert found.returncode == 0, found.stdout + found.stderr
    assert "tramer-mnist-linear: ok" in found.stdout
    run = tmp_path / "reports/runs/tramer-mnist-linear.json"
    text = run.read_text()
    assert "5.656854" in text
    # as if the statistics had been released without a trace
    run.write_text("\n".join(line for line in text.split("\n") if '"first_release"' not in line))
    found = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert found.returncode == 1
    assert "tramer-mnist-linear: WRONG" in found.stdout


def test_on_a_clone_dvc_makes_nothing_anew_that_is_committed(tmp_path: Path) -> None:
    if not (EXAMPLE / "dvc.lock").exists():
        pytest.skip("THE EXAMPLE HAS NO dvc.lock: `dvc repro` trains all of it anew")
    ignore = shutil.ignore_patterns("data", "runs", "*.npz", "cache", "tmp", "__pycache__")
    clone = shutil.copytree(EXAMPLE, tmp_path / "scattering", ignore=ignore)
    subprocess.run(["git", "init", "-q"], cwd=clone, check=True)
    trained = [path.stem for path in sorted(EXAMPLE.glob("reports/runs/*.json"))]
    assert trained
    targets = [f"{stage}@{row}" for row in trained for stage in ("evaluate", "ledger", "audit")]
    command = [sys.executable, "-m", "dvc", "repro", "--allow-missing", "--dry", *targets]
    done = subprocess.run(command, cwd=clone, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert set(re.findall(r"Running stage '([^']+)'", done.stdout)) <= {"identity"}
    assert all(f"Stage 'train@{row}' didn't change" in done.stdout for row in trained)
