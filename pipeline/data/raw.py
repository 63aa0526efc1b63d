"""Files of ``data/raw/NAME``, and their comparison with params.yaml.

The folder has the canonical files of the catalogue (archives are unpacked), or copies of the user's own
files, and ``source.json`` with the edition and the files' checksums. ``source.json`` doesn't record
where the files came from, so a mirror and a download give equal bytes.
"""

import json
from pathlib import Path
from typing import cast

from dprepro.errors import UserError
from dprepro.pipeline.data.catalog import OFFICIAL, STAND_INS, Edition, Entry, Format, catalogued
from dprepro.pipeline.data.declaration import digest_of
from dprepro.pipeline.data.prepared import Features
from dprepro.pipeline.files import digest_file, write_text
from dprepro.pipeline.params import OWN, PARAMS, OwnFeatures, OwnFiles, OwnTable, Settings

RAW = Path("data/raw")
SOURCE = "source.json"


def entry_of(name: str, settings: Settings) -> Entry:
    """Description of a raw data set, the catalogue's or the user's own, as an `Entry`."""
    if (declaration := settings.own.get(name)) is None:
        return catalogued(settings.raw_set(name))
    return Entry(
        key=name,
        title=f"own data {name!r}",
        licence=declaration.licence,
        format=cast(Format, OWN),
        classes=tuple(declaration.classes),
        shape=declaration.example_shape,
        editions={OWN: Edition((), ())},  # `SOURCE` lists the files
        features=_features(declaration),
    )


def _features(declaration: OwnFiles) -> Features | None:
    """Description of the features; None for images and texts."""
    if isinstance(declaration, OwnTable):
        return Features((-1.0, 1.0), True)
    if (network := declaration.public_network) is not None:
        return Features(None, False, network.words)
    return Features(declaration.range, declaration.clip) if isinstance(declaration, OwnFeatures) else None


def write_source(folder: Path, name: str, edition: str) -> dict[str, str]:
    """Write the ``source.json`` of the files in ``folder``; return their digests by name."""
    files = {
        path.relative_to(folder).as_posix(): digest_file(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
    content = {"data": name, "edition": edition, "files": files}
    write_text(folder / SOURCE, json.dumps(content, indent=2, sort_keys=True) + "\n")
    return files


def check(name: str, settings: Settings, root: Path = Path()) -> tuple[str, dict[str, str]]:
    """Edition of ``data/raw/NAME``, and digests of its files by name, after a comparison with params.yaml.

    Raises:
        UserError: files are missing or damaged, or the bytes differ from the edition; the message has the
            command to run.
    """
    entry, folder, again = entry_of(name, settings), root / RAW / name, f"run `dprepro fetch {name}`"
    try:
        source = json.loads((folder / SOURCE).read_bytes())
        edition, files = str(source["edition"]), dict(source["files"])
    except FileNotFoundError as problem:
        raise UserError(f"{folder}: missing; {again} first") from problem
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as problem:
        raise UserError(f"{folder / SOURCE}: can't be read; {again} again") from problem
    asked = settings.edition(name)
    if edition != asked:
        raise UserError(
            f"{folder}: holds edition {edition!r}, but {PARAMS} asks for {asked!r}; {again} again"
        )
    layout, declaration = entry.edition(OFFICIAL if edition in STAND_INS else edition), settings.own.get(name)
    if declaration is not None and digest_of(files) != declaration.digest:
        raise UserError(f"{folder}: holds other files than own.{name}.digest of {PARAMS}; {again} again")
    # official files must have the catalogue's checksums, other files the checksums of source.json
    expected = files if declaration else {file.name: file.checksum for file in layout.files}
    for below, checksum in expected.items():
        path = folder / below
        if not path.is_file():
            raise UserError(f"{path}: missing; {again} again")
        if digest_file(path) != (files.get(below) if edition in STAND_INS else checksum):
            raise UserError(f"{path}: truncated or corrupt; {again} again")
    return edition, files
