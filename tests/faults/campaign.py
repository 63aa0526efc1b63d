"""The long way: `make fuzz`. Counts go to reports/faults.json.

It takes what time it is given, and says what it did in it and not what it was asked for.
"""

import argparse
import os
import platform
import random
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from pipeline.files import write_json
from tests.faults import edits, flips, networks, project
from tests.faults.inputs import Inputs, tried
from tests.faults.kills import COMMANDS, Kill, Kills

REPORT = Path("reports/faults.json").resolve()
Trial = Callable[[str, int], str | None]  # of a kind and a seed: what went wrong

# how many trials of each part where nobody says another number
COUNTS = {"inputs": 10_000, "networks": 500, "flips": 1_000, "edits": 1_000, "kills": 500}


def main() -> int:
    """Run all parts; 1 where anything went wrong."""
    asked = argparse.ArgumentParser(description=__doc__)
    for part, count in COUNTS.items():
        asked.add_argument(f"--{part}", type=int, default=count)
    asked.add_argument("--minutes", type=float, default=120, help="after which no further trial is begun")
    asked.add_argument("--seed", type=int, default=0)
    wanted = vars(asked.parse_args())
    begun = time.monotonic()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="dprepro-faults-") as scratch:
        made, whole = Path(scratch) / "made", Path(scratch) / "whole"
        made.mkdir()
        os.chdir(made)
        project.make()
        shutil.copytree(made, whole)  # hostile input leaves its own files in the other
        until, seed = begun + 60 * wanted["minutes"], wanted["seed"]
        results = {
            part: run(kinds, trial, range(seed, seed + wanted[part]), until)
            for part, (kinds, trial) in parts(whole, Path(scratch)).items()
        }
        os.chdir("/")
    report = {
        "date": date.today().isoformat(),
        "seconds": round(time.monotonic() - begun),
        "seed": seed,
        "asked": {part: wanted[part] for part in COUNTS},
        **results,
        "machine": f"{platform.machine()}, {os.cpu_count()} CPUs",
        "versions": {name: version(name) for name in ("torch", "numpy", "pydantic", "ruamel.yaml", "mlflow")}
        | {"python": platform.python_version()},
    }
    write_json(REPORT, report)
    print(f"{REPORT}: written")
    return int(any(part["failures"] for part in results.values()))


def run(kinds: list[str], trial: Trial, seeds: range, until: float) -> dict[str, Any]:
    """Try every kind by turns, as many seeds as there are or time is left."""
    done, failures = Counter[str](), []
    for number, seed in enumerate(seeds):
        if time.monotonic() > until:
            break
        kind = kinds[number % len(kinds)]
        done[kind] += 1
        try:
            wrong = trial(kind, seed)
        except Exception as problem:
            wrong = f"{type(problem).__name__}: {problem}"
        if wrong is not None:
            failures.append({"kind": kind, "seed": seed, "what": wrong[-2000:]})
    return {"tried": dict(done), "wrong": len(failures), "failures": failures}


def parts(made: Path, scratch: Path) -> dict[str, tuple[list[str], Trial]]:
    """The kinds of each part, and how one is tried. ``made``: a whole project, of which kills have copies."""
    inputs, kills = Inputs().kinds(), Kills(made, scratch)

    def flipped(kind: str, seed: int) -> str | None:
        return None if flips.noticed(kind, random.Random(seed)) else "unnoticed"

    def killed(command: str, seed: int) -> str | None:
        chance, unbroken = random.Random(seed), kills.unbroken(command)
        if chance.random() < 0.5:
            kill = Kill(after=chance.uniform(0, unbroken.seconds))
        else:
            kill = Kill(before_change=chance.randint(1, unbroken.changes))
        return kills.tried(command, kill)

    return {
        "inputs": (list(inputs), lambda kind, seed: tried(inputs[kind], seed)),
        "networks": (["random"], lambda _, seed: networks.tried(seed)),
        "flips": (list(flips.FILES), flipped),
        "edits": (list(edits.FILES), lambda kind, seed: edits.noticed(kind, random.Random(seed))),
        "kills": (list(COMMANDS), killed),
    }


if __name__ == "__main__":
    raise SystemExit(main())
