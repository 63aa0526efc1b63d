"""Raw data sets of `catalog.yaml`, and of the modules `data_sets` of a laboratory's packages."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from pydantic import TypeAdapter

from dprepro.errors import UserError
from dprepro.pipeline.data.prepared import Features
from dprepro.pipeline.extensions import cached, extensions
from dprepro.pipeline.params.documents import read_yaml

Format = Literal["idx", "cifar10", "cifar100", "ag-news"]
OFFICIAL = "official"
# editions that stand in for official files, without a download
DIGITS = "digits"
SYNTHETIC = "synthetic"
STAND_INS = (DIGITS, SYNTHETIC)


@dataclass(frozen=True)
class File:
    """File with its size and checksum."""

    name: str
    size: int  # bytes
    checksum: str  # 'sha256:...', or 'md5:...' if no better one was published


@dataclass(frozen=True)
class Archive:
    """Tar file with an edition's files among its members."""

    file: File
    folder: str  # of the files inside the archive
    addresses: tuple[str, ...]  # URLs of the archive


@dataclass(frozen=True)
class Edition:
    """Edition of a data set. Its canonical files, ``train`` and ``test``, are never archives."""

    train: tuple[File, ...]  # in the order of their examples
    test: tuple[File, ...]
    bases: tuple[str, ...] = ()  # URLs of folders with the files
    archives: tuple[Archive, ...] = ()
    note: str | None = None  # difference from the official edition

    @property
    def files(self) -> tuple[File, ...]:
        """All files, training part first."""
        return self.train + self.test


@dataclass(frozen=True)
class Entry:
    """Raw data set of the catalogue, with its editions."""

    key: str
    title: str
    licence: str
    format: Format
    classes: tuple[str, ...]
    shape: tuple[int, ...] | None  # of one image (C, H, W), or of features; None for text
    editions: dict[str, Edition] = field(hash=False)
    features: Features | None = None  # None: bytes of images, or texts
    # folders to search in a mirror: as this project, torchvision and the archives name them
    folders: tuple[str, ...] = ()

    def edition(self, name: str) -> Edition:
        """Edition ``name``.

        Raises:
            UserError: there is no such edition; the message lists all editions.
        """
        if name not in self.editions:
            raise UserError(
                f"params.yaml: raw.{self.key}.edition: {name!r} is not known; "
                f"allowed: {', '.join(self.editions)}"
            )
        return self.editions[name]


@cached
def catalog() -> dict[str, Entry]:
    """All raw data sets by key, without the user's own files.

    Raises:
        UserError: two data sets have the same key.
    """
    ours = read_yaml(Path(__file__).with_name("catalog.yaml"))
    entries = TypeAdapter(dict[str, Entry]).validate_python(
        {key: {"key": key, **entry} for key, entry in ours.items()}
    )
    for extension in extensions("data_sets").values():
        for entry in (value for value in vars(extension.load()).values() if isinstance(value, Entry)):
            if entry.key in entries:
                raise UserError(
                    f"{extension.path}: there is a data set {entry.key!r} already; allowed: another key"
                )
            entries[entry.key] = entry
    return entries


def catalogued(key: str) -> Entry:
    """Raw data set ``key``.

    Raises:
        UserError: the catalogue has no such data set; the message lists all keys.
    """
    known = catalog()
    if key not in known:
        raise UserError(f"params.yaml: raw.{key}: not in the catalogue; allowed: {', '.join(known)}")
    return known[key]
