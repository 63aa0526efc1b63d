"""The raw data sets: those that `catalog.yaml` beside this file lists, and those that other packages add.

An installed package adds one by an entry point of the group `dprepro.data_sets`, which names an `Entry`, and
a laboratory's package those that its modules of `data_sets` hold.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from pydantic import TypeAdapter

from pipeline.errors import UserError
from pipeline.extensions import cached, extensions
from pipeline.params.documents import read_yaml

Format = Literal["idx", "cifar10", "cifar100", "ag-news"]
OFFICIAL = "official"
SYNTHETIC = "synthetic"


@dataclass(frozen=True)
class File:
    """A file pinned by its bytes."""

    name: str
    size: int  # bytes
    checksum: str  # 'sha256:...', or 'md5:...' where nothing better was ever published


@dataclass(frozen=True)
class Archive:
    """A tar file whose members are (among others) an edition's files."""

    file: File
    folder: str  # of the members inside the archive
    addresses: tuple[str, ...]  # of the archive itself


@dataclass(frozen=True)
class Edition:
    """One version of a data set's bytes. The canonical files are never archives."""

    train: tuple[File, ...]  # in the order of its examples
    test: tuple[File, ...]
    bases: tuple[str, ...] = ()  # addresses under which every file lies by its own name
    archives: tuple[Archive, ...] = ()
    note: str | None = None  # how it differs from the official edition

    @property
    def files(self) -> tuple[File, ...]:
        """All files, training part first."""
        return self.train + self.test


@dataclass(frozen=True)
class Features:
    """What is declared of examples that are stored as floats."""

    range: tuple[float, float] | None  # between which all values lie, told without looking at them
    clip: bool  # whether values beyond it are moved to its end
    network: str | None = None  # public network whose features they are, in words


@dataclass(frozen=True)
class Entry:
    """A raw data set of the catalogue, with the editions of its bytes."""

    key: str
    title: str
    licence: str
    format: Format
    classes: tuple[str, ...]
    shape: tuple[int, ...] | None  # of one image (C, H, W), or of features; None for text
    editions: dict[str, Edition] = field(hash=False)
    features: Features | None = None  # None: bytes of images, or texts
    # Folders of a mirror in which the files are looked for: ours, torchvision's and the archives' own.
    folders: tuple[str, ...] = ()

    def edition(self, name: str) -> Edition:
        """The edition called ``name``.

        Raises:
            UserError: there is none; the message lists those there are.
        """
        if name not in self.editions:
            raise UserError(
                f"params.yaml: raw.{self.key}.edition: {name!r} is not known; "
                f"allowed: {', '.join(self.editions)}"
            )
        return self.editions[name]


@cached
def catalog() -> dict[str, Entry]:
    """Every raw data set by its key, but files of one's own.

    Raises:
        UserError: two have the same key.
    """
    ours = read_yaml(Path(__file__).with_name("catalog.yaml"))
    there = TypeAdapter(dict[str, Entry]).validate_python(
        {key: {"key": key, **entry} for key, entry in ours.items()}
    )
    for extension in extensions("data_sets").values():
        for entry in (value for value in vars(extension.load()).values() if isinstance(value, Entry)):
            if entry.key in there:
                raise UserError(
                    f"{extension.path}: there is a data set {entry.key!r} already; allowed: another key"
                )
            there[entry.key] = entry
    return there


def get(key: str) -> Entry:
    """The raw data set called ``key``.

    Raises:
        UserError: the catalogue has no such data set; the message lists those it has.
    """
    known = catalog()
    if key not in known:
        raise UserError(f"params.yaml: raw.{key}: not in the catalogue; allowed: {', '.join(known)}")
    return known[key]
