"""Rows as jobs of a real Slurm of two nodes, which `slurm.sh` sets up on this machine."""

import os
import shutil
import signal
import subprocess
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from dprepro.pipeline.results.records import CHECKPOINTS
from tests.cluster import project
from tests.cluster.project import processes, trainers, until

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


def jobs() -> list[str]:
    """Nodes of Slurm's jobs; '' of a job that waits."""
    return subprocess.check_output(["squeue", "--noheader", "--format=%N"], text=True).splitlines()


def test_rows_as_jobs_of_which_some_are_killed_or_wait(slurm: Path, tmp_path: Path) -> None:
    folder = tmp_path / "grid"
    project.make(folder, {f"row-{number:02}": project.row(number, epochs=5) for number in range(3)})

    def start() -> subprocess.Popen[str]:
        return project.repro(folder, "--jobs", "3", "--on", "srun --quiet", "--checkpoint-every", "0.2")

    # a coordinator is killed, while one job waits for a node: all jobs end by themselves
    running = start()
    until(lambda: any((folder / CHECKPOINTS).rglob("*.pt")) and len(jobs()) == 3, running)
    assert sorted(map(str.strip, jobs())) == ["", "one", "two"]
    running.kill()
    running.communicate()
    until(lambda: not jobs() and not list(processes(folder)))
    # Ctrl-C: the job that waits is cancelled, the others write checkpoints
    running = start()
    until(lambda: len(trainers(folder)) == 2 and len(jobs()) == 3, running)
    running.send_signal(signal.SIGINT)
    said, _ = running.communicate(timeout=120)
    assert running.returncode == 130, said
    assert not jobs()
    assert not list(processes(folder))
    # a trainer and an `srun` are killed: both rows are tried again
    running = start()
    until(lambda: len(trainers(folder)) == 2, running)
    killed = min(trainers(folder))
    row = dict(processes(folder))[killed].split('["train", "')[1].split('"')[0]
    os.kill(killed, signal.SIGKILL)
    launchers = (pid for pid, line in processes(folder) if line.startswith("srun") and f'"{row}"' not in line)
    os.kill(next(launchers), signal.SIGKILL)  # another row's
    said, _ = running.communicate(timeout=600)
    assert running.returncode == 0, said
    assert said.count(": died with status") >= 2, said
    assert "3 done, 0 failed" in said
    until(lambda: not jobs() and not list(processes(folder)))
