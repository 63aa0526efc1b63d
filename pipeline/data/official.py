"""The source `official`: the publishers' addresses, one after the other, until the right bytes are here."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from pipeline.data.catalog import OFFICIAL, Edition, Entry, File
from pipeline.data.download import Unavailable, download
from pipeline.data.transfer import copy, extract
from pipeline.errors import UserError, writing


def collect(entry: Entry, edition: Edition, downloads: Path, target: Path) -> None:
    """Download the canonical files of ``edition``, or an archive of them, and put them into ``target``.

    Args:
        entry: of the catalogue.
        edition: of the entry.
        downloads: a folder that survives between runs; finished downloads stay there, broken ones resume.
        target: an existing folder.

    Raises:
        UserError: no address gave the right bytes; the line lists what each of them did.
    """
    if not edition.bases and not edition.archives:
        raise UserError(
            f"{entry.title}: this edition is not published anywhere; give the folder that holds it with "
            f"--mirror DIR, or set raw.{entry.key}.edition: {OFFICIAL} in params.yaml"
        )
    problems = []
    with _alone(downloads):
        if edition.bases:
            try:
                _take_files(edition, downloads, target)
                return
            except Unavailable as problem:
                problems.append(str(problem))
        for archive in edition.archives:
            try:
                path = _take(archive.addresses, archive.file, downloads)
            except Unavailable as problem:
                problems.append(str(problem))
            else:
                extract(path, archive, edition.files, target)
                return
    raise UserError(
        f"{entry.title}: can't be downloaded: {'; '.join(problems)}. "
        "Run it again to go on where it stopped, or give a folder with the files: --mirror DIR"
    )


def _take_files(edition: Edition, downloads: Path, target: Path) -> None:
    for file in edition.files:
        path = _take([base + file.name for base in edition.bases], file, downloads)
        copy(path, target / file.name, file)


def _take(addresses: list[str] | tuple[str, ...], file: File, downloads: Path) -> Path:
    path = downloads / file.name
    download(addresses, file, path)
    return path


@contextmanager
def _alone(downloads: Path) -> Iterator[None]:
    """Keep a second process from writing the same partial files."""
    with writing(downloads):
        downloads.mkdir(parents=True, exist_ok=True)
        lock = FileLock(downloads / ".lock")
        try:
            lock.acquire(timeout=0)
        except Timeout as problem:
            raise UserError(
                f"{downloads}: another `dprepro fetch` is downloading here; wait for it"
            ) from problem
    try:
        yield
    finally:
        lock.release()
