"""A checkout with a few demo rows under git and DVC, for `dprepro repro` to work in."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dprepro.pipeline import params
from dprepro.pipeline.data import prepared
from dprepro.pipeline.data.fetch import fetch
from dprepro.pipeline.data.own.describe import describe
from dprepro.pipeline.data.prepare import prepare
from dprepro.pipeline.methods.base import Execution
from dprepro.pipeline.training import evaluation, rows
from dprepro.stages.init import stages
from tests.commands import ROOT, environment, heed_ctrl_c
from tests.made_records import lasting, stripes

BIN = Path(sys.executable).parent
ROW: dict[str, Any] = {
    **{"paper": "davody2020", "table": "t5", "label": "made up", "data": "mnist"},
    **{"model": {"name": "lenet5", "normalization": "layer"}, "method": "dpsgd"},
    **{"seeds": 1, "reproducible": True, "levels": [{"epsilon": 3}]},
}
# A row on data that need another row's network first
CNN: dict[str, Any] = ROW | {"model": {"name": "adlm_cnn", "normalization": "response"}}
SHORT = {"batch": 50, "epochs": 0.2, "learning_rate": 0.003}
CHAIN: dict[str, Any] = {
    "relevant": CNN | {"method": "noisy_weights", "settings": SHORT | {"draws": 1}, "levels": [{"sigma": 0}]},
    "adlm": CNN
    | {"data": "mnist-relevance", "method": "adlm"}
    | {"settings": SHORT | {"noise_batch": 600, "variant": "paper", "sensitivity": "maps"}},
}
# stands in for Slurm's `srun`: the task runs in a session of its own, with the launcher's pipe
LAUNCHER = """\
import os, subprocess, sys
os.environ["LAUNCHED"] = "1"
sys.exit(subprocess.run(sys.argv[1:], start_new_session=True).returncode)
"""


def data(raw: str, train: int) -> dict[str, Any]:
    return {"raw": raw, "train": train, "validation": 50, "public": {"raw": "kmnist", "count": 16}}


def row(number: int, epochs: float, **changes: Any) -> dict[str, Any]:
    settings = {"batch": 60, "epochs": epochs, "learning_rate": 0.005 + 0.01 * number}
    return ROW | {"settings": settings} | changes


def make(folder: Path, rows: dict[str, Any], with_files: bool = False) -> None:
    """Make the checkout: settings and stages, no data and no results.

    Args:
        folder: where.
        rows: those of `CHAIN` have the data they need.
        with_files: whether there are somebody's own files, the data `mine`.
    """
    for name in (".dvc/config", ".dvc/.gitignore", ".dvcignore", ".gitignore"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    (folder / "dvc.yaml").write_text(stages((ROOT / "dvc.yaml").read_text()))
    settings: dict[str, Any] = {
        "source": {"kind": "synthetic"},
        "own": {},
        "raw": {"mnist": {"train": 700, "test": 100}, "kmnist": {"train": 60, "test": 10}},
        "data": {"mnist": data("mnist", 600), "apart": data("mnist", 500)},
        "starts": {},
        "relevances": {"mnist-relevance": {"data": "mnist", "row": "relevant", "examples": 40}},
        "accounts": {},
        "rows": rows,
    }
    if "relevant" not in rows:
        settings["relevances"] = {}
    if with_files:
        images, labels = stripes(700)
        np.savez(folder / "mine.npz", inputs=images, labels=labels)
        own, split = describe("mine", "npz", {"path": "mine.npz"}, folder)
        settings["own"]["mine"] = own.model_dump(mode="json")
        settings["data"]["mine"] = split.model_dump(mode="json")
    (folder / "launcher.py").write_text(LAUNCHER)
    (folder / "params.yaml").write_text(json.dumps(settings))
    subprocess.run(["git", "init", "--quiet"], cwd=folder, env=environment(ROOT), check=True)


def unbroken(folder: Path, row: str) -> dict[str, Any]:
    """Prepare a checkout's data, train and measure a row in this process, and return what counts of it."""
    settings = params.load(folder / "params.yaml")
    for name in settings.raw:
        fetch(name, settings, folder)
    for name in settings.data:
        prepare(name, settings, folder)
    cpu = Execution(torch.device("cpu"), physical=256)  # as the command has it
    data = prepared.load(settings.rows[row].data, folder)
    rows.train(row, settings, data, cpu, lambda _: None, 60.0, folder)
    evaluation.evaluate(row, settings, data, cpu, folder)
    return numbers(folder)


def repro(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """`dprepro repro`, started."""
    return subprocess.Popen(
        [BIN / "dprepro", "repro", *arguments],
        cwd=folder,
        env=environment(ROOT),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=heed_ctrl_c,
    )


def until(happened: Callable[[], object], running: subprocess.Popen[str] | None = None) -> None:
    """Wait until something has happened, while a command runs."""
    end = time.monotonic() + 300
    while not happened():
        assert running is None or running.poll() is None, running.communicate()[0]
        assert time.monotonic() < end
        time.sleep(0.05)


def numbers(folder: Path) -> dict[str, Any]:
    """What counts of every run and evaluation."""
    values: dict[str, Any] = {}
    for path in sorted([*folder.glob("reports/trainings/*"), *folder.glob("reports/evaluations/*")]):
        values[path.relative_to(folder).as_posix()] = lasting(path)
    return values


def processes(folder: Path) -> Iterator[tuple[int, str]]:
    """What runs in a folder: process number, and the command line."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if os.readlink(entry / "cwd") == str(folder):
                yield int(entry.name), (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue


def trainers(folder: Path) -> set[int]:
    """Processes of tasks that train, without those of a launcher."""
    lines = processes(folder)
    return {
        pid for pid, line in lines if '[["train"' in line and "launcher.py" not in line and "srun" not in line
    }
