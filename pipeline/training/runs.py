"""The run folder that training leaves and evaluation reads: ``runs/ROW/``.

``run.json`` (`Run`: what was trained, what it spent, on what), ``history.csv`` (the training curves) and
``weights.pt`` (every tensor of the model with a leading replica dimension, in the order of ``run.json``).
"""

import csv
import io
import os
import pickle
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError

from pipeline.errors import UserError, writing
from pipeline.fields import Strict
from pipeline.files import write_bytes, write_text
from pipeline.models.model import Model
from pipeline.privacy.gradients import Tensors
from pipeline.privacy.laplace import Releases
from pipeline.privacy.spending import Spending
from pipeline.results.records import HISTORY_COLUMNS, Provenance

RUNS = Path("runs")
WEIGHTS = "weights.pt"


class Trained(Strict):
    """One replica of a finished run."""

    level: str
    seed: int
    settings: dict[str, Any]  # of the method, in full
    steps: int
    # the guarantee, from which the ledger is computed
    spending: Spending | Releases | None
    delta: float | None
    claimed_by: str | None
    broken: str | None
    uncounted: list[str]
    protects: str | None = None
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


def write(folder: Path, run: Run, model: Tensors, history: Iterable[tuple[Any, ...]]) -> None:
    """Write a run beside its place, then rename: nobody sees half of one.

    Args:
        folder: ``runs/ROW``; what was there is replaced.
        run: for ``run.json``.
        model: (R, ...) each, on the CPU.
        history: lines of `HISTORY_COLUMNS`.

    Raises:
        UserError: the disk is full or can't be written; what was there is then untouched.
    """
    temporary = folder.with_name(f".{folder.name}.{os.getpid()}")
    content = io.BytesIO()
    torch.save(model, content)
    try:
        write_bytes(temporary / WEIGHTS, content.getvalue())
        write_text(temporary / "history.csv", history_csv(history))
        write_text(temporary / "run.json", run.model_dump_json(indent=2) + "\n")
        with writing(folder):
            _replace(folder, temporary)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _replace(folder: Path, new: Path) -> None:
    """Put ``new`` in the place of ``folder``, or leave ``folder`` as it was."""
    old = folder.with_name(f"{new.name}.old")
    if folder.exists():
        folder.rename(old)
    try:
        new.rename(folder)
    except OSError:
        if old.exists():
            old.rename(folder)
        raise
    shutil.rmtree(old, ignore_errors=True)


def weights(folder: Path, device: torch.device) -> Tensors:
    """``weights.pt`` of a run folder, on ``device``.

    Raises:
        UserError: the file is missing, as in a row adopted without weights, or damaged.
    """
    path = folder / WEIGHTS
    try:
        return torch.load(path, map_location=device, weights_only=True)
    except (OSError, EOFError, RuntimeError, pickle.UnpicklingError) as problem:
        raise UserError(f"{path}: missing or damaged; run `dprepro train {folder.name}` again") from problem


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
