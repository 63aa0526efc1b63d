"""Files that are made here: the same everywhere, in official formats; digits are the published ones."""

import dataclasses
import re

import numpy as np
import pytest
from sklearn.datasets import load_digits

from dprepro.errors import UserError
from dprepro.pipeline.data import catalog, digits, formats, synthetic
from dprepro.pipeline.data.fetch import fetch
from dprepro.pipeline.data.prepare import prepare
from dprepro.pipeline.files import digest_files
from dprepro.pipeline.params import parse

COUNTS = {"train": 400, "test": 100}
# A change here changes every demo's data: it must be meant.
DIGESTS = {
    "mnist": "sha256:c8abfd14054e9e5f63a7aaa2d8643834508932c81bdba9b57b6109e7d02fef47",
    "kmnist": "sha256:74ea80e16b9d19add42992b52fbe2f0773ae466742893b151331d61356f5c02c",
    "cifar10": "sha256:76eae514ab865129557e219157a868b01c05194b3d33c09749d07817a295934d",
    "cifar100": "sha256:f0b98786cdd864ca9d734f8f91b5175c4a331ab2d157fa9cdaf18774cb94b4ff",
    "ag-news": "sha256:88c63b30529088777edb82ee73bacb37eea9acbea4d6193ac4962dc92b8ebb45",
}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    root = tmp_path_factory.mktemp("made")
    for key in DIGESTS:
        (root / key).mkdir()
        synthetic.write(catalog.catalogued(key), COUNTS["train"], COUNTS["test"], root / key)
    return root


@pytest.mark.parametrize("key", DIGESTS)
def test_bytes_are_the_same_on_every_machine(made, key):
    assert digest_files(made / key, (made / key).iterdir()) == DIGESTS[key]


@pytest.mark.parametrize(("key", "shape"), [("fashion-mnist", (1, 28, 28)), ("odd-sizes", (1, 30, 17))])
def test_a_laboratorys_own_data_set_is_made_too(tmp_path, key, shape):
    entry = dataclasses.replace(catalog.catalogued("mnist"), key=key, shape=shape)
    synthetic.write(entry, 60, 20, tmp_path)
    files = entry.editions["official"].train
    examples = formats.read("idx", [tmp_path / file.name for file in files])
    assert examples.inputs.shape == (60, *shape)
    mnist = tmp_path / "mnist"
    mnist.mkdir()
    synthetic.write(catalog.catalogued("mnist"), 60, 20, mnist)
    assert (mnist / files[0].name).read_bytes() != (tmp_path / files[0].name).read_bytes()


def test_texts_of_more_classes_are_made_too(tmp_path):
    entry = dataclasses.replace(
        catalog.catalogued("ag-news"), key="twelve", classes=tuple(map(str, range(12)))
    )
    synthetic.write(entry, 60, 24, tmp_path)
    (file,) = entry.editions["official"].train
    assert set(formats.read("ag-news", [tmp_path / file.name]).labels.tolist()) == set(range(12))


EDITIONS = [(key, name) for key, entry in catalog.catalog().items() for name in entry.editions]


@pytest.mark.parametrize(("key", "name"), EDITIONS)
def test_every_file_is_pinned(key, name):
    edition = catalog.catalogued(key).edition(name)
    for file in (*edition.files, *(archive.file for archive in edition.archives)):
        assert file.size > 0
        assert re.fullmatch(r"sha256:[0-9a-f]{64}|md5:[0-9a-f]{32}", file.checksum)
    assert all(file.checksum.startswith("sha256:") for file in edition.files)
    assert len({file.name for file in edition.files}) == len(edition.files)
    assert (name == "official") == (edition.note is None)


def test_an_unknown_data_set_is_a_line():
    with pytest.raises(UserError, match=r"raw\.svhn: not in the catalogue; allowed: mnist, kmnist"):
        catalog.catalogued("svhn")


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


def test_bytes_of_digits_are_the_same_on_every_machine(tmp_path):
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
