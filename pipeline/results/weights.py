"""Weights of trained replicas: ``runs/ROW/``, one file per replica, stored by DVC and not by git."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from dprepro.errors import UserError, shown
from dprepro.pipeline.files import Damaged, digest, read_checked, write_bytes

if TYPE_CHECKING:
    import torch

    from dprepro.privacy.gradients import Tensors

RUNS = Path("runs")
ENDING = ".safetensors"


def weights_path(row: str, level: str, seed: int, root: Path = Path()) -> Path:
    """Path of a replica's weights: ``runs/ROW/epsilon=3,seed=0.safetensors``."""
    return root / RUNS / row / f"{level},seed={seed}{ENDING}"


def write_weights(path: Path, model: "Tensors") -> str:
    """Write a replica's tensors atomically and return the file's digest.

    Raises:
        UserError: the disk is full or can't be written; the old file is then unchanged.
    """
    import safetensors.torch
    import torch

    # safetensors refuses views, and the model's tensors are views of tensors of all replicas
    apart = {name: value.clone(memory_format=torch.contiguous_format) for name, value in model.items()}
    content = safetensors.torch.save(apart)
    write_bytes(path, content)
    return digest(content)


def read_weights(path: Path, expected: str | None, device: "torch.device") -> "Tensors":
    """Read a replica's tensors onto ``device``; ``expected`` is the digest in its run.

    Raises:
        UserError: the file is missing, as in a fresh clone, or has another digest.
    """
    import safetensors.torch

    row = path.parent.name
    try:
        content = read_checked(path, expected)
    except OSError as problem:
        raise UserError(
            f"{path}: {os.strerror(problem.errno or 0)}; `dvc pull train@{row}` brings weights from a "
            f"remote, or delete reports/runs/{row}.json and train it again"
        ) from problem
    except Damaged as problem:
        raise UserError(
            f"{path}: is not what training left (its digest is not the one in reports/runs/{row}.json); "
            f"delete it, and `dvc pull train@{row}` or train it again"
        ) from problem
    try:
        # sorted, because the order of safetensors differs between processes
        tensors = sorted(safetensors.torch.load(content).items())
        return {name: value.to(device) for name, value in tensors}
    # a malicious file with a matching run may raise any exception
    except Exception as problem:
        raise UserError(f"{path}: no weights: {shown(str(problem))}") from problem


def clear_weights(row: str, kept: set[Path], root: Path = Path()) -> None:
    """Delete the files of a row's weights other than ``kept``."""
    for path in set((root / RUNS / row).glob(f"*{ENDING}")) - kept:
        path.unlink()
