"""Checkpoints: what an interrupted training goes on from, and the lock that keeps it to one process."""

import io
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout

from pipeline.errors import UserError, writing
from pipeline.files import Damaged, read_sealed, write_sealed
from pipeline.methods.base import State
from pipeline.privacy.parameters import Noise

# Outside DVC's outs, which DVC deletes before it runs a stage.
CHECKPOINTS = Path(".dprepro/checkpoints")


@dataclass(frozen=True)
class Checkpoint:
    """Training after ``done`` steps. Random streams are derived anew, unless it has their entropy."""

    state: State
    done: int
    history: list[tuple[Any, ...]]
    seconds: float  # trained so far
    started: float  # Unix time of the first step
    cpu_seconds: float = 0.0  # of processor time so far
    entropy: str | None = None  # in hexadecimal, where noise is drawn once
    noise: Noise = "float32"  # as it was in checkpoints that don't say


def save(path: Path, checkpoint: Checkpoint) -> None:
    """Write a checkpoint with its digest; the one before stays until the new one is whole."""
    content = io.BytesIO()
    torch.save({name: getattr(checkpoint, name) for name in checkpoint.__dataclass_fields__}, content)
    write_sealed(path, content.getvalue())


def restore(path: Path, device: torch.device) -> Checkpoint | None:
    """The last checkpoint, on ``device``; None where there is none.

    Raises:
        UserError: the file is damaged.
    """
    if not path.exists():
        return None
    try:
        content = io.BytesIO(read_sealed(path))
        return Checkpoint(**torch.load(content, map_location=device, weights_only=True))
    except (Damaged, OSError, EOFError, RuntimeError, TypeError, pickle.UnpicklingError) as problem:
        raise UserError(f"{path}: damaged; delete it to train from the start") from problem


def lock_of(folder: Path) -> FileLock:
    """The lock of a checkpoint folder, which whoever trains there holds."""
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    return FileLock(folder.with_suffix(".lock"))


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Hold a checkpoint folder's lock: a killed `dvc` leaves its trainer running, and the next must not join.

    Raises:
        UserError: another process holds it.
    """
    lock = lock_of(folder)
    try:
        with lock.acquire(blocking=False):
            yield
    except Timeout as problem:
        raise UserError(
            f"{lock.lock_file}: held by another process that trains this row; wait for it or stop it"
        ) from problem
