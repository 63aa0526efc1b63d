"""The catalogue agrees with itself; whether it agrees with the world, `test_real_data` knows."""

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


@pytest.mark.parametrize("key", catalog.catalog())
def test_official_editions_have_more_than_one_address(key):
    edition = catalog.get(key).editions["official"]
    addresses = [*edition.bases, *(address for each in edition.archives for address in each.addresses)]
    assert len(set(addresses)) == len(addresses) >= 2
    assert all(address.startswith(("https://", "http://")) for address in addresses)
    assert all(base.endswith("/") for base in edition.bases)


def test_unknown_names():
    with pytest.raises(UserError, match=r"raw\.svhn: not in the catalogue; allowed: mnist, kmnist"):
        catalog.get("svhn")
    with pytest.raises(UserError, match="'partial' is not known; allowed: official"):
        catalog.get("mnist").edition("partial")
