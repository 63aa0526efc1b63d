"""The source `mirror`: a folder that holds the official files, as they are or in their archives.

A file is recognised by its checksum alone, so a mirror can't change a result; its name and the folders listed
in the catalogue only say where to look.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from pipeline.data import transfer
from pipeline.data.catalog import OFFICIAL, Edition, Entry, File
from pipeline.data.transfer import Unavailable, fault
from pipeline.errors import UserError


def collect(entry: Entry, edition: Edition, folder: Path, target: Path) -> None:
    """Put the canonical files of ``edition`` that lie under ``folder`` into ``target``.

    Raises:
        UserError: a file is missing, wrong or of another edition; the line names it.
    """
    if not folder.is_dir():
        raise UserError(
            f"{folder}: no such folder; a mirror is a folder that holds the files of {entry.title}"
        )
    lacking: list[File] = []

    def find(file: File, _: Sequence[str]) -> Path:
        if (path := _find(entry, file, folder)) is None:
            lacking.append(file)
            raise Unavailable
        return path

    try:
        transfer.collect(edition, find, target)
    except Unavailable:
        raise UserError(_complaint(entry, edition, lacking[0], folder)) from None


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
