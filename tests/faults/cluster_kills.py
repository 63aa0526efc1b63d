"""`python -m tests.faults.cluster_kills`: a grid on two local blocks, killed at random moments, as it ends.

Each trial takes a fresh checkout whose data are prepared, starts `dprepro repro --jobs 2`, kills (-9) a
worker, the coordinator or both at a random moment, starts the coordinator again where it was killed, and
compares: every row has the unbroken run's numbers, the lock signs them all, and no row that had a checkpoint
began anew. One JSON line a trial.
"""

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from pipeline.results import records
from pipeline.training.checkpoints import CHECKPOINTS
from tests.cluster import project

WHOM = ("worker", "coordinator", "both")
PATIENCE = 900.0  # seconds for a whole run on a busy machine


def main() -> int:
    """Run the trials; 1 where any ended otherwise."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--kills", type=int, default=30)
    asked.add_argument("--rows", type=int, default=3)
    asked.add_argument("--epochs", type=float, default=6)
    asked.add_argument("--seed", type=int, default=0)
    asked.add_argument("--minutes", type=float, default=60, help="after which no further trial is begun")
    wanted = asked.parse_args()
    until = time.monotonic() + 60 * wanted.minutes
    chance, wrong, done = random.Random(wanted.seed), 0, 0
    with tempfile.TemporaryDirectory(prefix="dprepro-kills-") as scratch:
        made = Path(scratch) / "made"
        project.make(made, wanted.rows, wanted.epochs, chain=False)
        unbroken = Path(scratch) / "unbroken"
        begun = time.monotonic()
        shutil.copytree(made, unbroken)
        assert _ended(project.repro(unbroken, "--jobs", "2"))[0] == 0
        took = time.monotonic() - begun
        expected = project.numbers(unbroken)
        shutil.copytree(unbroken / "data", made / "data")
        for number in range(wanted.kills):
            if time.monotonic() > until:
                break
            whom, after = WHOM[number % 3], chance.uniform(3, took)
            folder = Path(scratch) / "trial"
            shutil.copytree(made, folder)
            found = {"trial": number, "kills": whom, "after": round(after, 1)}
            found |= _tried(folder, whom, after, chance)
            found["differs"] = sorted(
                name for name, one in project.numbers(folder).items() if one != expected.get(name)
            ) + sorted(expected.keys() - project.numbers(folder).keys())
            bad = found["differs"] or found["unsigned"] or found["anew"] or found["status"]
            wrong, done = wrong + bool(bad), done + 1
            print(json.dumps(found), flush=True)
            shutil.rmtree(folder)
    print(json.dumps({"trials": done, "wrong": wrong, "unbroken seconds": round(took, 1)}))
    return int(bool(wrong))


def _tried(folder: Path, whom: str, after: float, chance: random.Random) -> dict[str, object]:
    """Kill, run to the end, and say how it ended."""
    begun = time.monotonic()
    coordinator = project.repro(folder, "--jobs", "2", "--checkpoint-every", "1")
    killed: list[str] = []
    try:
        coordinator.wait(after)
    except subprocess.TimeoutExpired:
        below = list(workers(coordinator.pid))
        if whom != "coordinator" and below:
            for pid, kind in [chance.choice(below)] if whom == "worker" else below:
                killed.append(kind)
                _kill(pid)
        if whom != "worker":
            killed.append("coordinator")
            _kill(coordinator.pid)
    at, here = time.time(), _here(folder)
    status, said = _ended(coordinator)
    if "coordinator" in killed:
        status, said = _ended(project.repro(folder, "--jobs", "2", "--checkpoint-every", "1"))
    again = _ended(project.repro(folder))[1].strip()
    anew = [
        row
        for row in here
        if (run := records.read_run(row, folder)) and any(one.started > at for one in run.replicas)
    ]
    return {
        "killed": sorted(killed),
        "had begun": here,
        "anew": anew,
        "status": status,
        "unsigned": "" if again == "nothing to do" else again[-500:],
        "said": said[-500:] if status else "",
        "seconds": round(time.monotonic() - begun, 1),
    }


def workers(coordinator: int) -> Iterator[tuple[int, str]]:
    """What works for a coordinator: pools, their workers that have a trainer, trainers, and other helpers.

    Blocks have other parents: they are found by the folder that they work in.
    """
    folder = os.readlink(f"/proc/{coordinator}/cwd")
    lines, parents = {}, {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if os.readlink(entry / "cwd") == folder:
                lines[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    trainers = [pid for pid, line in lines.items() if " train row-" in line]
    busy = {parents[pid] for pid in trainers}
    for pid, line in lines.items():
        if pid in trainers:
            yield pid, "trainer"
        elif "process_worker_pool" in line and "python" in line.split()[0]:
            yield pid, "pool"
        elif "spawn_main" in line:
            yield pid, "worker" if pid in busy else "helper"


def _here(folder: Path) -> list[str]:
    """Rows that have a checkpoint, or are trained."""
    begun = {path.relative_to(folder / CHECKPOINTS).parts[0] for path in (folder / CHECKPOINTS).rglob("*.pt")}
    return sorted(begun | {path.stem for path in folder.glob("reports/runs/*.json")})


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    said, _ = process.communicate(timeout=PATIENCE)
    return process.returncode, said


if __name__ == "__main__":
    raise SystemExit(main())
