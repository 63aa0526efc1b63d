"""`python -m tests.faults.cluster_kills`: a grid of two slots, killed at random moments, as it ends.

Each trial takes a fresh checkout whose data are prepared, runs `dprepro repro`, by turns on this machine's
own slots and on Parsl's workers, and kills (-9) by turns something that works for it, the coordinator, or
all of it, at random moments; a killed coordinator is started again. In the end every row must have the
unbroken run's numbers, the lock must hold them all, and no row may have begun anew that had a checkpoint
before. One JSON line a kill and one a trial.
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
from typing import Any

import torch

from pipeline import params
from pipeline.cluster import tasks
from pipeline.results import records
from pipeline.training.checkpoints import CHECKPOINTS
from tests.cluster import project

WHOM = ("worker", "coordinator", "all")
PLACES = (("--jobs", "2"), ("--on", "slots.py"))
PATIENCE = 900.0  # seconds for a whole run on a busy machine


def main() -> int:
    """Run the trials; 1 where any ended otherwise."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--trials", type=int, default=3)
    asked.add_argument("--kills", type=int, default=10, help="of a trial")
    asked.add_argument("--gap", type=float, default=40, help="seconds between two kills at most")
    asked.add_argument("--epochs", type=float, default=15)
    asked.add_argument("--seed", type=int, default=0)
    wanted = asked.parse_args()
    chance, wrong, kills = random.Random(wanted.seed), 0, 0
    rows = ("row-00", "row-01")
    torch.set_num_threads(1)  # as many as a trainer has there, whose sums are added up in the same order
    with tempfile.TemporaryDirectory(prefix="dprepro-kills-") as scratch:
        made, folder = Path(scratch) / "made", Path(scratch) / "trial"
        project.make(made, len(rows), wanted.epochs)
        shutil.copytree(made, folder)
        expected = project.unbroken(folder, rows)
        shutil.copytree(folder / "data", made / "data")
        for number in range(wanted.trials):
            shutil.rmtree(folder)
            shutil.copytree(made, folder)
            found = _Trial(folder, PLACES[number % 2], wanted.kills, wanted.gap, chance).run()
            own = project.numbers(folder)
            found["differs"] = sorted(
                name for name in own.keys() | expected.keys() if own.get(name) != expected.get(name)
            )
            kills += found["kills"]
            bad = found["differs"] or found["left"] or found["anew"] or found["status"]
            wrong += bool(bad)
            print(json.dumps({"trial": number, **found}), flush=True)
    print(json.dumps({"trials": wanted.trials, "kills": kills, "wrong": wrong}))
    return int(bool(wrong))


class _Trial:
    """One grid, killed many times."""

    def __init__(self, folder: Path, place: tuple[str, str], kills: int, gap: float, chance: random.Random):
        self.folder, self.place, self.wanted, self.gap, self.chance = folder, place, kills, gap, chance
        self.begun = time.monotonic()
        self.first: dict[str, float] = {}  # by row, when a checkpoint or its run was first seen at a kill

    def run(self) -> dict[str, Any]:
        """Kill, run to the end, and say how it ended."""
        coordinator, done = self._start(), 0
        while done < self.wanted:
            try:
                coordinator.wait(self.chance.uniform(1, self.gap))
                break  # nothing left to kill
            except subprocess.TimeoutExpired:
                pass
            whom = WHOM[done % len(WHOM)]
            below = [] if whom == "coordinator" else list(workers(self.folder))
            if whom == "worker":
                below = [self.chance.choice(below)] if below else []
            else:
                below.append((coordinator.pid, "coordinator"))
            for pid, _ in below:
                _kill(pid)
            if not below:
                continue
            done += 1
            now, here = time.time(), self._here()
            self.first |= dict.fromkeys(here - self.first.keys(), now)
            line = {"kill": done, "of": [kind for _, kind in below], "begun": sorted(here)}
            print(json.dumps(line), flush=True)
            if whom != "worker":
                coordinator.communicate()
                coordinator = self._start()
        said, _ = coordinator.communicate(timeout=PATIENCE)
        os.chdir(self.folder)
        left = tasks.todo(params.load())
        os.chdir("/")
        runs = {row: records.read_run(row, self.folder) for row in self.first}
        anew = [
            row
            for row, run in runs.items()
            if run is None or any(one.started > self.first[row] for one in run.replicas)
        ]
        return {
            "kills": done,
            "status": coordinator.returncode,
            "said": said[-500:] if coordinator.returncode else "",
            "left": [*(task.name for task in left.tasks), *left.unsigned],
            "anew": anew,
            "seconds": round(time.monotonic() - self.begun),
        }

    def _start(self) -> subprocess.Popen[str]:
        return project.repro(self.folder, *self.place, "--checkpoint-every", "0.5")

    def _here(self) -> set[str]:
        """Rows that have a checkpoint, or are trained."""
        folder = self.folder / CHECKPOINTS
        begun = {path.relative_to(folder).parts[0] for path in folder.rglob("*.pt")}
        return begun | {path.stem for path in self.folder.glob("reports/runs/*.json")}


def workers(folder: Path) -> Iterator[tuple[int, str]]:
    """What works in a folder for a coordinator: trainers, Parsl's pools, workers that have a trainer, others.

    Blocks have other parents than the coordinator: they are told by the folder that they work in.
    """
    lines, parents = {}, {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if os.readlink(entry / "cwd") == str(folder):
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


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


if __name__ == "__main__":
    raise SystemExit(main())
