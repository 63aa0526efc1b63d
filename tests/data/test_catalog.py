"""The catalogue agrees with itself."""

import re

import pytest

from pipeline.data import catalog
from pipeline.errors import UserError

EDITIONS = [(key, name) for key, entry in catalog.catalog().items() for name in entry.editions]


@pytest.mark.parametrize(("key", "name"), EDITIONS)
def test_every_file_is_pinned(key, name):
    edition = catalog.get(key).edition(name)
    for file in (*edition.files, *(archive.file for archive in edition.archives)):
        assert file.size > 0
        assert re.fullmatch(r"sha256:[0-9a-f]{64}|md5:[0-9a-f]{32}", file.checksum)
    assert all(file.checksum.startswith("sha256:") for file in edition.files)
    assert len({file.name for file in edition.files}) == len(edition.files)
    assert (name == "official") == (edition.note is None)


def test_unknown_names():
    with pytest.raises(UserError, match=r"raw\.svhn: not in the catalogue; allowed: mnist, kmnist"):
        catalog.get("svhn")
    with pytest.raises(UserError, match="'partial' is not known; allowed: official"):
        catalog.get("mnist").edition("partial")
