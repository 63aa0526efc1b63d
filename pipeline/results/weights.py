"""The weights that training leaves: ``runs/ROW/``, a file a replica, which DVC carries and git doesn't."""

import io
import os
from pathlib import Path

import torch

from pipeline.errors import UserError, shown, writing
from pipeline.files import Damaged, digest, read_checked, write_bytes
from pipeline.privacy.gradients import Tensors

RUNS = Path("runs")


def weights_path(row: str, level: str, seed: int, root: Path = Path()) -> Path:
    """Where a replica's weights lie: ``runs/ROW/epsilon=3,seed=0.pt``."""
    return root / RUNS / row / f"{level},seed={seed}.pt"


def make_weights_folder(row: str, root: Path = Path()) -> None:
    """Make the folder of a row's weights, where there is none.

    Raises:
        UserError: the disk can't be written.
    """
    folder = root / RUNS / row
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)


def write_weights(path: Path, model: Tensors) -> str:
    """Write a replica's tensors, on the CPU, beside their place and then rename; returns the file's digest.

    Raises:
        UserError: the disk is full or can't be written; what was there is then untouched.
    """
    content = io.BytesIO()
    # a copy of each: a view would take the tensors of all other replicas into the file
    torch.save({name: value.clone() for name, value in model.items()}, content)
    write_bytes(path, content.getvalue())
    return digest(content.getvalue())


def read_weights(path: Path, expected: str | None, device: torch.device) -> Tensors:
    """A replica's tensors, on ``device``; ``expected`` is the digest that its run says.

    Raises:
        UserError: the file is missing, as in a fresh clone, or is not the one that training left.
    """
    row = path.parent.name
    try:
        content = read_checked(path, expected)
    except OSError as problem:
        raise UserError(
            f"{path}: {os.strerror(problem.errno or 0)}; `dvc pull train@{row}` brings weights from a remote"
        ) from problem
    except Damaged as problem:
        raise UserError(
            f"{path}: is not what training left (its digest is not the one in reports/runs/{row}.json); "
            f"delete it, and `dvc pull train@{row}` or train it again"
        ) from problem
    try:
        found = torch.load(io.BytesIO(content), map_location=device, weights_only=True)
    # of a file that somebody else made, with a run that vouches for it, torch raises whatever it comes to
    except Exception as problem:
        raise UserError(f"{path}: no weights: {shown(str(problem))}") from problem
    if not isinstance(found, dict) or not all(
        isinstance(name, str) and isinstance(value, torch.Tensor) for name, value in found.items()
    ):
        raise UserError(f"{path}: no weights: not tensors by name")
    return found


def clear_weights(row: str, kept: set[Path], root: Path = Path()) -> None:
    """Delete the weights of replicas that the row no longer has."""
    folder = root / RUNS / row
    for path in folder.glob("*.pt"):
        if path not in kept:
            path.unlink()
