"""scikit-learn's digits in MNIST's files: the published images, the same bytes, and an honest name."""

import numpy as np
import pytest
from sklearn.datasets import load_digits

from dprepro.pipeline.data import catalog, digits, formats
from dprepro.pipeline.data.fetch import fetch
from dprepro.pipeline.data.prepare import prepare
from dprepro.pipeline.files import digest_files
from dprepro.pipeline.params import parse

SPLIT = {"raw": "mnist", "train": 1300, "validation": 100, "public": {"raw": "mnist", "count": 100}}


@pytest.fixture
def settings():
    source = {"kind": "digits"}
    return parse({"source": source, "raw": {"mnist": {}}, "own": {}, "data": {"small": SPLIT}, "rows": {}})


def test_every_image_is_the_published_one_and_has_its_label(tmp_path):
    entry, published = catalog.catalogued("mnist"), load_digits()
    digits.write(entry, tmp_path)
    parts = [
        formats.read("idx", [tmp_path / file.name for file in files])
        for files in (entry.editions["official"].train, entry.editions["official"].test)
    ]
    assert [len(part.inputs) for part in parts] == [1797 - digits.TEST, digits.TEST]
    images = np.concatenate([part.inputs[:, 0] for part in parts])
    assert images.shape == (1797, 28, 28)
    # the middle of each enlarged pixel has the pixel's own brightness
    assert (images[:, 3:-2:3, 3:-2:3] == 255 * published.images.astype(int) // 16).all()
    assert (images[:, [0, -1]] == 0).all()
    assert (np.concatenate([part.labels for part in parts]) == published.target).all()


def test_bytes_are_the_same_on_every_machine(tmp_path):
    digits.write(catalog.catalogued("mnist"), tmp_path)
    assert digest_files(tmp_path, tmp_path.iterdir()) == (
        "sha256:c638c351bd02572aa059a441112929445dcf32b30a8e1a27e1b3f78a833970e2"
    )


def test_a_manifest_names_source_and_licence(settings, tmp_path):
    assert fetch("mnist", settings, tmp_path).edition == "digits"
    manifest = prepare("small", settings, tmp_path)
    origin = manifest["raw"]["mnist"]
    assert (origin["edition"], origin["title"]) == ("digits", digits.TITLE)
    assert "CC BY 4.0" in origin["licence"]
    assert "10.24432/C50P49" in origin["licence"]
    assert manifest["counts"] == {"train": 1300, "validation": 100, "public": 100, "test": 297}
