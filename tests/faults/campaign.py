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
from dataclasses import asdict
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


def main() -> int:
    """Run all parts; 1 where anything was found."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--inputs", type=int, default=10_000)
    asked.add_argument("--flips", type=int, default=1_000)
    asked.add_argument("--edits", type=int, default=1_000)
    asked.add_argument("--kills", type=int, default=500)
    asked.add_argument("--networks", type=int, default=500)
    asked.add_argument("--minutes", type=float, default=120, help="after which no further trial is begun")
    asked.add_argument("--seed", type=int, default=0)
    wanted = asked.parse_args()
    begun = time.monotonic()
    until = begun + 60 * wanted.minutes
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="dprepro-faults-") as scratch:
        made = Path(scratch) / "made"
        made.mkdir()
        os.chdir(made)
        project.make()
        whole = Path(scratch) / "whole"  # hostile input leaves its own files in the other
        shutil.copytree(made, whole)
        found = {
            "inputs": _inputs(wanted.inputs, wanted.seed, until),
            "networks": _networks(wanted.networks, wanted.seed, until),
            "bit flips": _flips(wanted.flips, wanted.seed, until),
            "edits": _edits(wanted.edits, wanted.seed, until),
            "kills": _kills(wanted.kills, wanted.seed, until, whole, Path(scratch)),
        }
        os.chdir("/")
    asked_for = {
        "inputs": wanted.inputs,
        "bit flips": wanted.flips,
        "edits": wanted.edits,
        "kills": wanted.kills,
        "networks": wanted.networks,
    }
    report = {
        "date": date.today().isoformat(),
        "seconds": round(time.monotonic() - begun),
        "seed": wanted.seed,
        "asked": asked_for,
        **found,
        "machine": f"{platform.machine()}, {os.cpu_count()} CPUs",
        "versions": {name: version(name) for name in ("torch", "numpy", "pydantic", "ruamel.yaml", "mlflow")}
        | {"python": platform.python_version()},
    }
    write_json(REPORT, report)
    print(f"{REPORT}: written")
    return int(any(part["failures"] for part in found.values()))


def _inputs(count: int, seed: int, until: float) -> dict[str, Any]:
    kinds, done, failures = Inputs().kinds(), Counter[str](), []
    for number in range(count):
        if time.monotonic() > until:
            break
        name = list(kinds)[number % len(kinds)]
        wrong = tried(kinds[name], seed + number)
        done[name] += 1
        if wrong is not None:
            failures.append({"kind": name, "seed": seed + number, "what": wrong[-2000:]})
    hangs = sum(one["what"] == "hang" for one in failures)
    return {"tried": dict(done), "tracebacks": len(failures) - hangs, "hangs": hangs, "failures": failures}


def _networks(count: int, seed: int, until: float) -> dict[str, Any]:
    done, failures = 0, []
    for number in range(seed, seed + count):
        if time.monotonic() > until:
            break
        done += 1
        try:
            wrong = networks.tried(number)
        except Exception as problem:
            wrong = f"{type(problem).__name__}: {problem}"
        if wrong is not None:
            failures.append({"seed": number, "what": wrong[-2000:]})
    return {"tried": done, "wrong": len(failures), "failures": failures}


def _flips(count: int, seed: int, until: float) -> dict[str, Any]:
    done, failures = Counter[str](), []
    for number in range(count):
        if time.monotonic() > until:
            break
        kind = list(flips.FILES)[number % len(flips.FILES)]
        done[kind] += 1
        if not flips.noticed(kind, random.Random(seed + number)):
            failures.append({"kind": kind, "seed": seed + number})
    return {"tried": dict(done), "unnoticed": len(failures), "failures": failures}


def _edits(count: int, seed: int, until: float) -> dict[str, Any]:
    done, failures = Counter[str](), []
    for number in range(count):
        if time.monotonic() > until:
            break
        kind = list(edits.FILES)[number % len(edits.FILES)]
        done[kind] += 1
        if place := edits.noticed(kind, random.Random(seed + number)):
            failures.append({"kind": kind, "seed": seed + number, "what": place})
    return {"tried": dict(done), "unnoticed": len(failures), "failures": failures}


def _kills(count: int, seed: int, until: float, made: Path, scratch: Path) -> dict[str, Any]:
    kills, chance = Kills(made, scratch), random.Random(seed)
    done, failures = Counter[str](), []
    for number in range(count):
        if time.monotonic() > until:
            break
        turn, which = divmod(number, len(COMMANDS))
        command = list(COMMANDS)[which]
        whole = kills.unbroken(command)
        if turn % 2:
            kill = Kill(after=chance.uniform(0, whole.seconds))
        else:
            kill = Kill(before_change=chance.randint(1, whole.changes))
        wrong = kills.tried(command, kill)
        done[command] += 1
        if wrong is not None:
            failures.append({"command": command, "kill": asdict(kill), "what": wrong})
    return {"tried": dict(done), "unequal": len(failures), "failures": failures}


if __name__ == "__main__":
    raise SystemExit(main())
