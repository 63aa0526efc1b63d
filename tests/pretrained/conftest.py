"""Prepared data of two sets: digits, and letters, which are public to whoever trains on digits."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from pipeline.data.prepared import PREPARED, Prepared, Split
from pipeline.files import digest_file
from tests.conftest import make_data


def write(data: Prepared, name: str, root: Path) -> None:
    """Lay out prepared data as `prepare` does."""
    folder = root / PREPARED / name
    folder.mkdir(parents=True)
    digests = {}
    for split, examples in data.splits.items():
        for kind, array in (("inputs", examples.inputs), ("labels", examples.labels)):
            np.save(folder / f"{split}.{kind}.npy", array)
            digests[f"{split}.{kind}"] = digest_file(folder / f"{split}.{kind}.npy")
    (folder / "manifest.json").write_text(json.dumps({**data.manifest, "name": name, "digests": digests}))


def letters() -> Prepared:
    """Images like those of `make_data`, and none the same."""
    data = make_data(60, 10, 10)
    splits = {name: Split(255 - split.inputs, split.labels) for name, split in data.splits.items()}
    return dataclasses.replace(data, splits=splits)


def check_same_examples(source: Prepared, derived: Prepared) -> None:
    """Data with something of a trained row are the data they were made of."""
    for split, examples in source.splits.items():
        assert np.array_equal(derived.splits[split].inputs, examples.inputs)
        assert np.array_equal(derived.splits[split].labels, examples.labels)


@pytest.fixture
def world(tmp_path: Path) -> Path:
    """Prepared data of two sets, and nothing trained."""
    write(make_data(60, 10, 10), "digits", tmp_path)
    write(letters(), "letters", tmp_path)
    return tmp_path
