"""The weights that training leaves: ``runs/ROW/``, a file a replica, which DVC carries and git doesn't."""

import io
import os
from pathlib import Path

import safetensors.torch
import torch

from pipeline.errors import UserError, shown, writing
from pipeline.files import Damaged, digest, read_checked, write_bytes
from pipeline.privacy.gradients import Tensors

RUNS = Path("runs")
# Of what is written, and of torch's files from before, which are still read: runs and evaluations in git have
# the digest of their bytes.
ENDING, EARLIER = ".safetensors", ".pt"


def weights_path(row: str, level: str, seed: int, root: Path = Path()) -> Path:
    """Where a replica's weights are written: ``runs/ROW/epsilon=3,seed=0.safetensors``."""
    return root / RUNS / row / f"{level},seed={seed}{ENDING}"


def existing_weights(row: str, level: str, seed: int, root: Path = Path()) -> Path:
    """Where a replica's weights lie: `weights_path`, or torch's file where only that is there."""
    path = weights_path(row, level, seed, root)
    earlier = path.with_suffix(EARLIER)
    return earlier if earlier.exists() and not path.exists() else path


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
    # safetensors takes whole tensors alone, and the model's are views of those of all replicas
    apart = {name: value.clone(memory_format=torch.contiguous_format) for name, value in model.items()}
    content = safetensors.torch.save(apart)
    write_bytes(path, content)
    return digest(content)


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
        if path.suffix == EARLIER:
            tensors = torch.load(io.BytesIO(content), weights_only=True)
        else:
            # in one order, as safetensors has another in each process
            tensors = dict(sorted(safetensors.torch.load(content).items()))
        return {str(name): value.to(device) for name, value in tensors.items()}
    # of a file that somebody else made, with a run that vouches for it, either raises whatever it comes to
    except Exception as problem:
        raise UserError(f"{path}: no weights: {shown(str(problem))}") from problem


def clear_weights(row: str, kept: set[Path], root: Path = Path()) -> None:
    """Delete the weights of replicas that the row no longer has."""
    folder = root / RUNS / row
    for path in (*folder.glob(f"*{ENDING}"), *folder.glob(f"*{EARLIER}")):
        if path not in kept:
            path.unlink()
