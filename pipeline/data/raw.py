"""Reader of ``data/raw/NAME``.

The folder has the canonical files of the catalogue (archives are unpacked), or copies of the user's own
files, and ``source.json`` with the edition and the files' checksums. ``source.json`` doesn't record
where the files came from, so a mirror and a download give equal bytes.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from dprepro.errors import UserError
from dprepro.pipeline.data import catalog, formats
from dprepro.pipeline.data.catalog import OFFICIAL, STAND_INS, Entry
from dprepro.pipeline.data.declaration import digest_of
from dprepro.pipeline.data.formats import Examples
from dprepro.pipeline.data.own import sets
from dprepro.pipeline.files import digest_file, write_text
from dprepro.pipeline.params import PARAMS, Settings

RAW = Path("data/raw")
SOURCE = "source.json"


@dataclass(frozen=True)
class RawSet:
    """Raw data set read from ``data/raw``, after a comparison with its declaration."""

    entry: Entry
    edition: str
    files: dict[str, str]  # name -> sha256 digest
    parts: dict[str, Examples]  # train, test; each in the official order


def entry_of(name: str, settings: Settings) -> Entry:
    """Description of a raw data set, the catalogue's or the user's own, as an `Entry`."""
    declaration = settings.own.get(name)
    return catalog.get(settings.raw_set(name)) if declaration is None else sets.entry(name, declaration)


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


def load(name: str, settings: Settings, root: Path = Path()) -> RawSet:
    """Read ``data/raw/NAME`` after comparing its bytes with the declared edition.

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
    if declaration is not None:
        return RawSet(entry, edition, files, sets.parts(name, declaration, folder, root))
    parts = {
        part: formats.read(entry.format, [folder / file.name for file in which])
        for part, which in (("train", layout.train), ("test", layout.test))
    }
    return RawSet(entry, edition, files, parts)
