"""A prepared data set as `prepare` lays it out, read back.

``data/prepared/NAME/`` holds, for each split (train, validation, test, public), ``SPLIT.inputs.npy`` and
``SPLIT.labels.npy``, and ``manifest.json``. Image inputs are uint8 of shape (N, C, H, W); text inputs are
int32 token numbers of shape (N, T), 0 for padding; labels are int64 of shape (N,). A data set of ``starts``
has ``start.npz`` too, public weights to start from (`pipeline.pretrained.starts`), and one of ``relevances``
has ``relevance.npz``, how relevant each feature is to a trained network (`pipeline.pretrained.relevance`).
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.errors import UserError

PREPARED = Path("data/prepared")
START = "start.npz"
RELEVANCE = "relevance.npz"
SPLITS = ("train", "validation", "test", "public")


@dataclass(frozen=True)
class Split:
    """Inputs and labels of one split, in the same order."""

    inputs: np.ndarray
    labels: np.ndarray

    def __len__(self) -> int:
        """Number of examples."""
        return len(self.labels)


@dataclass(frozen=True)
class Prepared:
    """A prepared data set."""

    name: str
    splits: dict[str, Split]
    manifest: dict[str, Any]
    start: Path | None = None  # file of public weights to start from
    relevance: Path | None = None  # file of the features' relevances to a network

    @property
    def input_shape(self) -> tuple[int, ...]:
        """What a network is built for: (C, H, W) of an image; (T, V) of a text, V its vocabulary's size."""
        shape = self.splits["train"].inputs.shape[1:]
        return (*shape, self.manifest["text"]["vocabulary"]) if "text" in self.manifest else shape

    @property
    def classes(self) -> int:
        """Number of classes."""
        return len(self.manifest["classes"])

    @property
    def digests(self) -> dict[str, str]:
        """Digest of each array, such as 'train.inputs', and of 'start' or 'relevance' where there is one."""
        return dict(self.manifest["digests"])


def load(name: str, root: Path = Path()) -> Prepared:
    """Read ``data/prepared/NAME``; arrays are memory-mapped.

    Raises:
        UserError: the data set has not been prepared, or a file of it is missing.
    """
    folder = root / PREPARED / name
    try:
        manifest = json.loads((folder / "manifest.json").read_text())
        splits = {
            split: Split(
                np.load(folder / f"{split}.inputs.npy", mmap_mode="r"),
                np.load(folder / f"{split}.labels.npy"),
            )
            for split in SPLITS
        }
    except FileNotFoundError as problem:
        raise UserError(
            f"{problem.filename}: missing; run `dprepro prepare {name}` first, or `dprepro start {name}` "
            f"where 'starts' has it, or `dprepro relevance {name}` where 'relevances' has it"
        ) from problem
    return Prepared(
        name,
        splits,
        manifest,
        start=folder / START if "start" in manifest else None,
        relevance=folder / RELEVANCE if "relevance" in manifest else None,
    )


def digests_here(name: str) -> dict[str, str] | None:
    """Digests of a prepared data set's arrays; None where it isn't prepared here."""
    return load(name).digests if (PREPARED / name / "manifest.json").exists() else None
