"""Weights of trainings: ``runs/ROW/``, one file per training, stored by DVC and not by git."""

import os
from collections.abc import Iterable
from datetime import timedelta
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING

from safetensors import SafetensorError, deserialize

from dprepro.errors import UserError, shown
from dprepro.pipeline.files import Damaged, check_file, digest, read_checked, write_bytes

if TYPE_CHECKING:
    import torch

    from dprepro.clipping.functional import Tensors
    from dprepro.pipeline.results.schema import RowTrainings, TrainingRecord

RUNS = Path("runs")
ENDING = ".safetensors"
NAMED = 3  # trainings named in a line


def weights_path(row: str, level: str, seed: int, root: Path = Path()) -> Path:
    """Path of a training's weights: ``runs/ROW/epsilon=3,seed=0.safetensors``."""
    return root / RUNS / row / f"{level},seed={seed}{ENDING}"


def lacking(
    run: "RowTrainings | None", root: Path = Path(), compared: bool = False
) -> tuple["TrainingRecord", ...]:
    """Recorded trainings whose weights are not here. ``compared``: or have another digest than recorded."""
    return tuple(each for each in run.trainings if not _here(run.row, each, root, compared)) if run else ()


def _here(row: str, trained: "TrainingRecord", root: Path, compared: bool) -> bool:
    path = weights_path(row, *trained.key, root)
    if not path.is_file() or not compared or trained.weights is None:
        return path.is_file()
    try:
        check_file(path, trained.weights)
    except (Damaged, OSError):
        return False
    return True


def repeated(trainings: Iterable["TrainingRecord"], root: Path = Path()) -> str | None:
    """Message on the first training with the weights of another one; None: there is none.

    Recorded digests are compared, and the tensors of the files that are here, whatever their metadata.
    """
    seen: dict[str, TrainingRecord] = {}
    for training in trainings:
        path = weights_path(training.row, *training.key, root)
        digests = [training.weights, tensors_digest(path) if path.exists() else None]
        for each in filter(None, digests):
            first = seen.setdefault(each, training)
            if first.key != training.key:
                name = f"{training.level}, seed {training.seed}"
                return f"{name}: has the weights of {first.level}, seed {first.seed}"
    return None


def tensors_digest(path: Path) -> str:
    """Digest of the tensors in a file of weights, without the file's metadata. Needs no torch.

    Raises:
        UserError: the file isn't in the format safetensors.
    """
    try:
        tensors = sorted(deserialize(path.read_bytes()))
    except SafetensorError as problem:
        raise UserError(f"{path}: no weights: not in the format safetensors") from problem
    parts = [f"{name} {about['dtype']} {about['shape']} ".encode() + about["data"] for name, about in tensors]
    return digest(b"".join(parts))


def seconds(run: "RowTrainings | None", levels: Iterable[str]) -> float | None:
    """Duration of a training of each of these levels by the row's record; None if it lacks one of them."""
    times = [run.seconds.get(level) if run else None for level in levels]
    known = [each for each in times if each is not None]
    return sum(known) if len(known) == len(times) else None


def duration(run: "RowTrainings | None", levels: Iterable[str]) -> str:
    """Words for `seconds`: 'about 0:12:00 by its record', or 'duration not known'."""
    known = seconds(run, levels)
    return "duration not known" if known is None else f"about {timedelta(seconds=ceil(known))} by its record"


def require(
    run: "RowTrainings", wanted: Iterable["TrainingRecord"] | None = None, root: Path = Path()
) -> None:
    """Check that the weights of a row's trainings are here. ``wanted``: recorded trainings; None: all.

    Raises:
        UserError: some are not, as in a fresh clone; the line has the commands that make or bring them.
    """
    asked = run.trainings if wanted is None else tuple(wanted)
    if gone := [each for each in lacking(run, root) if each in asked]:
        names = ", ".join(f"{each.level} seed {each.seed}" for each in gone[:NAMED])
        names += f" and {len(gone) - NAMED} more" if len(gone) > NAMED else ""
        time = duration(run, [each.level for each in gone])
        raise UserError(
            f"{RUNS / run.row}: weights of {len(gone)} of {len(run.trainings)} trainings are not here "
            f"({names}); `dvc repro evaluate@{run.row}` trains and measures them again, {time}; "
            f"`dvc pull train@{run.row}` brings them from a remote"
        )


def write_weights(path: Path, model: "Tensors") -> str:
    """Write a training's tensors atomically and return the file's digest.

    Raises:
        UserError: the disk is full or can't be written; the old file is then unchanged.
    """
    import safetensors.torch
    import torch

    # safetensors refuses views
    apart = {name: value.clone(memory_format=torch.contiguous_format) for name, value in model.items()}
    content = safetensors.torch.save(apart)
    write_bytes(path, content)
    return digest(content)


def read_weights(path: Path, expected: str | None, device: "torch.device") -> "Tensors":
    """Read a training's tensors onto ``device``; ``expected`` is the digest in its run.

    Raises:
        UserError: the file is missing (`require` checks this first) or has another digest.
    """
    import safetensors.torch

    row = path.parent.name
    try:
        content = read_checked(path, expected)
    except OSError as problem:
        raise UserError(f"{path}: {os.strerror(problem.errno or 0)}") from problem
    except Damaged as problem:
        raise UserError(
            f"{path}: is not what training left (reports/trainings/{row}.jsonl has another digest); "
            f"delete it, and `dvc pull train@{row}` or `dvc repro train@{row}`"
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
