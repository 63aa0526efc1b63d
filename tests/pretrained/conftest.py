"""Prepared data of two sets: digits, and letters, which are public to whoever trains on digits."""

import copy
import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dprepro.pipeline import params
from dprepro.pipeline.data import prepared
from dprepro.pipeline.data.prepared import PREPARED, Prepared, Split
from dprepro.pipeline.files import digest_file
from dprepro.pipeline.methods.base import Execution
from dprepro.pipeline.params import Settings
from dprepro.pipeline.training import rows
from tests.conftest import make_data
from tests.training.running import quiet

CPU = Execution(torch.device("cpu"), physical=1000)
MODEL: dict[str, Any] = {"name": "lenet5", "normalization": "running_bn"}
ROW: dict[str, Any] = {
    **{"paper": "phan2017", "table": "pretrained", "label": "CNN", "data": "digits", "model": MODEL},
    **{"method": "noisy_weights", "seeds": 2, "reproducible": True},
    "settings": {"batch": 20, "epochs": 1, "learning_rate": 0.01, "draws": 1},
    "levels": [{"sigma": 0}],
}
PRIVATE: dict[str, Any] = {
    **ROW,
    "model": {"name": "lenet5", "normalization": "public_bn"},
    "method": "dpsgd",
    "settings": {"batch": 20, "epochs": 1, "learning_rate": 0.1, "delta": 1e-3},
    "levels": [{"epsilon": 3}],
}
PARAMS: dict[str, Any] = {
    "raw": {"mnist": {}, "kmnist": {}, "cifar100": {}},
    "data": {
        name: {"raw": raw, "train": 60, "validation": 10, "public": {"raw": "cifar100", "count": 8}}
        for name, raw in (("digits", "mnist"), ("letters", "kmnist"), ("colours", "kmnist"))
    },
    "starts": {
        "tuned": {"data": "digits", "row": "of-letters"},
        "tuned-letters": {"data": "letters", "row": "of-digits"},
    },
    "relevances": {
        "map": {"data": "digits", "row": "of-digits"},
        "strange": {"data": "digits", "row": "of-letters", "examples": 5},
        "late": {"data": "digits", "row": "tuning"},
        "shared": {"data": "digits", "row": "sharing"},
        "grey": {"data": "digits", "row": "of-colours"},
    },
    "rows": {
        "of-digits": ROW,
        "of-letters": {**ROW, "data": "letters"},
        "of-colours": {**ROW, "data": "colours"},
        "tuning": {**ROW, "data": "tuned-letters", "model": {**MODEL, "trainable": "linear"}},
        "sharing": PRIVATE,
        "after": {**PRIVATE, "data": "tuned", "model": {**PRIVATE["model"], "trainable": "linear"}},
    },
}


def parsed(row: str = "of-digits", **changes: Any) -> Settings:
    """PARAMS, with changes to a row."""
    raw = copy.deepcopy(PARAMS)
    raw["rows"][row].update(changes)
    return params.parse(raw)


def write(data: Prepared, name: str, root: Path) -> None:
    """Lay out prepared data as `prepare` does."""
    folder = root / PREPARED / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    digests = {}
    for split, examples in data.splits.items():
        for kind, array in (("inputs", examples.inputs), ("labels", examples.labels)):
            np.save(folder / f"{split}.{kind}.npy", array)
            digests[f"{split}.{kind}"] = digest_file(folder / f"{split}.{kind}.npy")
    raw = (PARAMS["data"][name]["raw"], "cifar100")
    manifest = {
        **data.manifest,
        "name": name,
        "digests": digests,
        "raw": {each: {"edition": "official", "title": each, "files": {}} for each in raw},
        "public": {"raw": "cifar100", "part": "train"},
        "input_shape": data.splits["train"].inputs.shape[1:],
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))


def letters() -> Prepared:
    """Images like those of `make_data`, and none the same."""
    data = make_data(60, 10, 10)
    splits = {name: Split(255 - split.inputs, split.labels) for name, split in data.splits.items()}
    return dataclasses.replace(data, splits=splits)


def train(row: str, root: Path, settings: Settings | None = None) -> None:
    settings = settings or parsed()
    rows.train(row, settings, prepared.load(settings.rows[row].data, root), CPU, quiet, 60, root)


def check_same_data(source: Prepared, derived: Prepared, part: str, path: Path | None) -> None:
    """Data with something of a trained row are the data they were made of, with one file more."""
    for split, examples in source.splits.items():
        assert np.array_equal(derived.splits[split].inputs, examples.inputs)
        assert np.array_equal(derived.splits[split].labels, examples.labels)
    for key in source.manifest.keys() - {"name", "digests"}:
        assert derived.manifest[key] == source.manifest[key]
    assert path is not None
    assert path.name == f"{part}.npz"
    assert derived.digests == {**source.digests, part: digest_file(path)}


@pytest.fixture
def world(tmp_path: Path) -> Path:
    """Prepared data of two sets, and nothing trained."""
    write(make_data(60, 10, 10), "digits", tmp_path)
    write(letters(), "letters", tmp_path)
    return tmp_path
