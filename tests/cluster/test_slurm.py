"""Rows as jobs of a real Slurm of two nodes, which `slurm.sh` sets up on this machine."""

import os
import shutil
import signal
import subprocess
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from dprepro.pipeline.training.checkpoints import CHECKPOINTS
from tests.cluster import project
from tests.cluster.project import until, workers

pytestmark = pytest.mark.broad  # minutes, most of them waiting for Slurm
SCRIPT = Path(__file__).with_name("slurm.sh")
PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
MISSING = [name for name in ("munged", "slurmctld", "slurmd", "sbatch") if not shutil.which(name, path=PATH)]


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Its configuration."""
    if MISSING or os.geteuid():
        why = f"no Slurm here ({', '.join(MISSING) or 'not root'}): rows as its jobs go untested"
        warnings.warn(why, stacklevel=1)
        pytest.skip(f"{why}; apt-get install slurmctld slurmd slurm-client munge")
    # short, as munge's socket has a name of at most 108 characters
    folder = Path(subprocess.check_output(["mktemp", "-d", "/tmp/slurm-XXXXXX"], text=True).strip())
    subprocess.run([SCRIPT, "up", folder], check=True)
    monkeypatch.setenv("SLURM_CONF", str(folder / "slurm.conf"))
    yield folder
    subprocess.run([SCRIPT, "down", folder], check=True)
    shutil.rmtree(folder, ignore_errors=True)


def test_a_worker_killed_on_a_node(slurm: Path, tmp_path: Path) -> None:
    folder = tmp_path / "grid"
    project.make(folder, {f"row-{number:02}": project.row(number, epochs=5) for number in range(2)})
    running = project.repro(folder, "--jobs", "2", "--on", "slurm", "--checkpoint-every", "0.2")
    until(lambda: any((folder / CHECKPOINTS).rglob("*.pt")), running)
    jobs = subprocess.check_output(["squeue", "--noheader", "--format=%N"], text=True).split()
    assert sorted(jobs) == ["one", "two"]
    os.kill(next(pid for pid, kind in workers(folder) if kind == "worker"), signal.SIGKILL)
    said, _ = running.communicate(timeout=600)
    assert running.returncode == 0, said
    assert "its worker died, tried again" in said
    assert "5 done, 0 failed" in said
    # no job is left behind
    until(lambda: not subprocess.check_output(["squeue", "--noheader"], text=True).strip())
