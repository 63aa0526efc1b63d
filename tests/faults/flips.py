"""One flipped bit in weights, a checkpoint, a prepared array or a pack."""

import gzip
import random
from collections.abc import Callable
from pathlib import Path

import torch

from pipeline.data import prepared
from pipeline.errors import UserError
from pipeline.results import records
from pipeline.results.weights import read_weights, weights_path
from pipeline.training.checkpoints import restore
from pipeline.transport import archive
from tests.faults import project
from tests.there import there

CPU = torch.device("cpu")


def _weights() -> tuple[Path, Callable[[], object]]:
    run = there(records.read_run(project.ROW))
    (one,) = run.replicas
    path = weights_path(project.ROW, one.level, one.seed)
    return path, lambda: read_weights(path, one.weights, CPU)


def _array(name: str) -> tuple[Path, Callable[[], object]]:
    return prepared.PREPARED / "mnist" / name, lambda: prepared.load("mnist")


FILES: dict[str, Callable[[], tuple[Path, Callable[[], object]]]] = {
    "weights": _weights,
    "checkpoint": lambda: (project.CHECKPOINT, lambda: restore(project.CHECKPOINT, CPU)),
    "inputs": lambda: _array("train.inputs.npy"),
    "labels": lambda: _array("test.labels.npy"),
    "pack": lambda: (project.PACK, lambda: archive.read(project.PACK, Path(".dprepro/flips"))),
}


def noticed(kind: str, chance: random.Random) -> bool:
    """Flip a bit of a file, read it, and put it back: whether reading refused.

    Of a pack a bit that isn't part of anything packed, such as its compression's time, changes nothing.
    """
    path, read = FILES[kind]()
    good = path.read_bytes()
    flipped = bytearray(good)
    flipped[chance.randrange(len(flipped))] ^= 1 << chance.randrange(8)
    path.write_bytes(flipped)
    try:
        read()
    except UserError:
        return True
    finally:
        path.write_bytes(good)
    return kind == "pack" and gzip.decompress(bytes(flipped)) == gzip.decompress(good)
