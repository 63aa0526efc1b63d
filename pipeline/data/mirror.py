"""The source `mirror`: a folder that holds the official files, as they are or in their archives.

A file is recognised by its checksum alone, so a mirror can't change a result; its name and the folders listed
in the catalogue only say where to look.
"""

from collections.abc import Iterator
from pathlib import Path

from pipeline.data.catalog import OFFICIAL, Edition, Entry, File
from pipeline.data.transfer import copy, extract, fault
from pipeline.errors import UserError


def collect(entry: Entry, edition: Edition, folder: Path, target: Path) -> None:
    """Put the canonical files of ``edition`` found under ``folder`` into ``target``.

    Raises:
        UserError: a file is missing, wrong or of another edition; the line names it.
    """
    if not folder.is_dir():
        raise UserError(
            f"{folder}: no such folder; a mirror is a folder that holds the files of {entry.title}"
        )
    found = {file.name: _find(entry, file, folder) for file in edition.files}
    lacking = [file for file in edition.files if found[file.name] is None]
    if lacking:
        for archive in edition.archives:
            if path := _find(entry, archive.file, folder):
                extract(path, archive, edition.files, target)
                return
        raise UserError(_complaint(entry, edition, lacking[0], folder))
    for file in edition.files:
        if path := found[file.name]:
            copy(path, target / file.name, file)


def _places(entry: Entry, name: str, folder: Path) -> Iterator[Path]:
    """Where a file called ``name`` exists, likeliest place first."""
    return (path for place in entry.folders if (path := folder / place / name).is_file())


def _find(entry: Entry, file: File, folder: Path) -> Path | None:
    """A place that holds exactly these bytes."""
    return next((path for path in _places(entry, file.name, folder) if fault(path, file) is None), None)


def _complaint(entry: Entry, edition: Edition, lacking: File, folder: Path) -> str:
    """Why ``lacking`` could not be taken: what lies there is another edition, wrong, or nothing."""
    for name, other in entry.editions.items():
        for file in set(other.files) - set(edition.files):
            if path := _find(entry, file, folder):
                kind = "the official one" if name == OFFICIAL else f"not official ({other.note})"
                return (
                    f"{path}: this is edition {name!r} of {entry.title}, {kind}; "
                    f"to take it, set raw.{entry.key}.edition: {name} in params.yaml"
                )
    for file in (lacking, *(archive.file for archive in edition.archives)):
        for path in _places(entry, file.name, folder):
            return f"{path}: not the file of {entry.title}: {fault(path, file)}"
    archives = "".join(f" or {archive.file.name}" for archive in edition.archives)
    places = ", ".join(place or "." for place in entry.folders)
    return f"{folder}: lacks {lacking.name}{archives} of {entry.title}; looked in its {places}"
