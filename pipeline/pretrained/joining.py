"""Shared code of `starts` and `relevances`: copies of prepared data sets with arrays from a trained row.

``data/prepared/NAME/`` is a copy of the prepared data set's folder with one more file, which has arrays by
name. This file is a NumPy archive: equal arrays must have equal digests, and torch's own files differ between
versions.
"""

import io
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import torch

from dprepro.clipping.functional import Tensors
from dprepro.pipeline.data import prepared
from dprepro.pipeline.data.prepared import PREPARED, Prepared
from dprepro.pipeline.data.splits import content_keys
from dprepro.pipeline.files import digest, digest_file, replacing_folder, write_bytes, write_json, writing
from dprepro.pipeline.identity.frozen import require_usable
from dprepro.pipeline.methods.base import LAST
from dprepro.pipeline.params import Settings
from dprepro.pipeline.results import records
from dprepro.pipeline.results.schema import TrainingRecord
from dprepro.pipeline.results.weights import read_weights, require, weights_path


@dataclass(frozen=True)
class SourceRow:
    """Trained row and its training data."""

    path: Path  # file of its weights
    trained: TrainingRecord  # the first training
    data: Prepared

    def weights(self) -> Tensors:
        """Tensors of the first training's tested model by name, on the CPU."""
        every = read_weights(self.path, self.trained.weights, torch.device("cpu"))
        return {name: value for name, value in every.items() if not name.startswith(LAST)}

    def about(self, config: str) -> dict[str, Any]:
        """Manifest entry of the row; ``config`` is the digest of the settings that decide its arrays."""
        return {
            "row": self.trained.row,
            "config": config,
            "model": self.trained.model,
            "data": self.trained.data,
            "edition": self.trained.origin.edition,
            "level": self.trained.level,
            "seed": self.trained.seed,
        }


def trained_row(row: str, settings: Settings, root: Path) -> SourceRow:
    """Trained row ``row``.

    Raises:
        UserError: the row is not trained, was trained with other settings or data, or has no weights here.
    """
    run = records.require_run(row, root)
    first, data = run.trainings[0], prepared.load(settings.rows[row].data, root)
    require_usable([first], settings.rows[row], data, root)
    require(run, [first], root)
    return SourceRow(weights_path(row, *first.key, root), first, data)


def shared_examples(before: Iterable[Prepared], data: Prepared) -> dict[str, int]:
    """Number of examples, in each split of ``data``, that are train or public examples in ``before``.

    The public split of ``data`` isn't counted. Two data sets may share images: CIFAR-10's test part and
    CIFAR-100's training part share one.
    """
    known = {
        key
        for each in before
        for split in ("train", "public")
        for key in content_keys(each.splits[split].inputs)
    }
    return {
        split: sum(key in known for key in content_keys(data.splits[split].inputs))
        for split in ("train", "validation", "test")
    }


def join(
    name: str,
    source: Prepared,
    part: str,
    arrays: dict[str, Any],
    about: dict[str, Any],
    root: Path,
    inputs: Mapping[str, np.ndarray] = MappingProxyType({}),
) -> Path:
    """Write ``data/prepared/NAME``: a copy of ``source`` with ``PART.npz``, and ``about`` in its manifest.

    ``inputs``: by name of the split, inputs that replace those of ``source``.

    Raises:
        UserError: the folder can't be written.
    """
    content = io.BytesIO()
    np.savez(content, **arrays)  # uncompressed and without a time: the same bytes on every machine
    manifest: dict[str, Any] = {
        **source.manifest,
        "name": name,
        part: about,
        "digests": {**source.digests, part: digest(content.getvalue())},
    }
    target = root / PREPARED / name
    with replacing_folder(target) as building:
        replaced = {f"{split}.inputs.npy": array for split, array in inputs.items()}
        with writing(building):
            for path in sorted((root / PREPARED / source.name).iterdir()):
                if path.name not in replaced:
                    # copied without permissions, because files of DVC's cache may be read-only
                    shutil.copyfile(path, building / path.name)
            for file, array in replaced.items():
                np.save(building / file, array, allow_pickle=False)
                manifest["digests"][file.removesuffix(".npy")] = digest_file(building / file)
                manifest["input_shape"] = list(array.shape[1:])
        write_bytes(building / f"{part}.npz", content.getvalue())
        write_json(building / "manifest.json", manifest)
    return target
