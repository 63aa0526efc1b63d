"""Checkpoints of interrupted trainings, and the lock that allows one process per row."""

import io
import pickle
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from dprepro.errors import UserError
from dprepro.pipeline.files import digest, locked, write_bytes
from dprepro.pipeline.methods.base import State


@dataclass(frozen=True)
class Checkpoint:
    """Training after ``done`` steps. A resumed run draws new randomness, unless ``entropy`` is set."""

    state: State
    done: int
    history: list[tuple[Any, ...]]
    seconds: float  # of training so far
    started: float  # Unix time of the first step
    cpu_seconds: float = 0.0  # of processor time so far
    entropy: str | None = None  # entropy of the random streams in hexadecimal, if noise is drawn once

    def save(self, path: Path) -> None:
        """Write the checkpoint behind its digest, atomically."""
        content = io.BytesIO()
        torch.save({name: getattr(self, name) for name in self.__dataclass_fields__}, content)
        write_bytes(path, digest(content.getvalue()).encode() + b"\n" + content.getvalue())

    @classmethod
    def restore(cls, path: Path, device: torch.device) -> "Checkpoint | None":
        """Last checkpoint, on ``device``; None if there is none.

        Raises:
            UserError: the file is damaged.
        """
        if not path.exists():
            return None
        try:
            seal, _, content = path.read_bytes().partition(b"\n")
            if seal != digest(content).encode():
                raise EOFError("its digest is not the one that it begins with")
            return cls(**torch.load(io.BytesIO(content), map_location=device, weights_only=True))
        except (OSError, EOFError, RuntimeError, TypeError, pickle.UnpicklingError) as problem:
            raise UserError(f"{path}: damaged; delete it to train from the start") from problem


def checkpoint_lock(folder: Path, wait: bool = False) -> AbstractContextManager[None]:
    """Lock of a checkpoint folder, because the training of a killed `dvc` may still run.

    Raises:
        UserError: another process holds the lock, and ``wait`` is False.
    """
    message = "held by another process that trains this row; wait for it or stop it"
    return locked(folder.with_suffix(".lock"), None if wait else message)
