"""The run folder that training leaves and evaluation reads: ``runs/ROW/``.

``run.json`` (`Run`: what was trained, what it spent, on what), ``history.csv`` (the training curves) and
``weights.pt`` (every parameter with a leading replica dimension, in the order of ``run.json``).
"""

import csv
import io
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError

from pipeline.errors import UserError, writing
from pipeline.files import write_bytes, write_text
from pipeline.privacy.gradients import Tensors
from pipeline.records import HISTORY_COLUMNS, Provenance
from pipeline.settings import DpsgdSettings, Model, Strict

RUNS = Path("runs")


class Trained(Strict):
    """One replica of a finished run."""

    level: str
    seed: int
    settings: DpsgdSettings
    steps: int
    # the guarantee, in numbers from which the ledger is computed
    noise_multiplier: float | None
    rate: float | None
    delta: float | None
    claimed_by: str | None
    broken: str | None
    uncounted: list[str]
    seconds: float
    started: float
    ended: float


class Run(Strict):
    """`run.json`: everything about a run but its numbers' curves and weights."""

    row: str
    model: Model
    method: str
    data: str
    replicas: list[Trained]
    provenance: Provenance


def write(folder: Path, run: Run, weights: Tensors, history: Iterable[tuple[Any, ...]]) -> None:
    """Write a run beside its place, then rename: nobody sees half of one.

    Args:
        folder: ``runs/ROW``; what was there is replaced.
        run: for ``run.json``.
        weights: (R, ...) each, on the CPU.
        history: lines of `HISTORY_COLUMNS`.

    Raises:
        UserError: the disk is full or can't be written; what was there is then untouched.
    """
    temporary = folder.with_name(f".{folder.name}.{os.getpid()}")
    content = io.BytesIO()
    torch.save(weights, content)
    try:
        write_bytes(temporary / "weights.pt", content.getvalue())
        write_text(temporary / "history.csv", history_csv(history))
        write_text(temporary / "run.json", run.model_dump_json(indent=2) + "\n")
        with writing(folder):
            shutil.rmtree(folder, ignore_errors=True)
            temporary.rename(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def read(folder: Path) -> Run:
    """``run.json`` of a run folder.

    Raises:
        UserError: the row has not been trained, or the file is not a run's.
    """
    try:
        return Run.model_validate_json((folder / "run.json").read_text())
    except FileNotFoundError as problem:
        raise UserError(f"{folder}: not trained yet; run `dprepro train {folder.name}` first") from problem
    except ValidationError as problem:
        raise UserError(f"{folder / 'run.json'}: not a run: {problem.errors()[0]['msg']}") from problem


def history_csv(lines: Iterable[tuple[Any, ...]]) -> str:
    """Training curves as CSV, one value a line, sorted by replica, metric and step."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(HISTORY_COLUMNS)
    for level, seed, step, epoch, metric, value in sorted(
        lines, key=lambda line: (line[0], line[1], line[4], line[2])
    ):
        writer.writerow([level, seed, step, f"{epoch:.4f}", metric, f"{value:.6g}"])
    return text.getvalue()
