"""The source `official`: the publishers' addresses, one after the other, until the right bytes are here."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pooch
from filelock import FileLock, Timeout
from requests import RequestException

from pipeline.data.catalog import OFFICIAL, Edition, Entry, File
from pipeline.data.transfer import copy, extract
from pipeline.errors import UserError, writing

TIMEOUT = 30.0  # seconds without a single byte before a connection counts as dropped
RETRIES = 3  # of one address
INTERVAL = 10.0  # seconds between two lines of progress

# it announces every file that it downloads
pooch.get_logger().setLevel("WARNING")


class Unavailable(Exception):
    """No address gave the file; the text says what each of them did."""


def collect(entry: Entry, edition: Edition, downloads: Path, target: Path) -> None:
    """Download the canonical files of ``edition``, or an archive of them, and put them into ``target``.

    ``downloads`` is a folder that survives between runs, and keeps what was downloaded.

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
                for file in edition.files:
                    path = download([base + file.name for base in edition.bases], file, downloads)
                    copy(path, target / file.name, file)
                return
            except Unavailable as problem:
                problems.append(str(problem))
        for archive in edition.archives:
            try:
                path = download(archive.addresses, archive.file, downloads)
            except Unavailable as problem:
                problems.append(str(problem))
            else:
                extract(path, archive, edition.files, target)
                return
    raise UserError(
        f"{entry.title}: can't be downloaded: {'; '.join(problems)}. "
        "Run it again, or give a folder with the files: --mirror DIR"
    )


def download(addresses: Sequence[str], file: File, folder: Path) -> Path:
    """Bring ``file`` into ``folder`` from the first address that has these very bytes; returns its path.

    Raises:
        Unavailable: no address gave these bytes.
        UserError: the folder can't be written.
    """
    problems = []
    for address in addresses:
        there = pooch.create(
            folder,
            "",
            registry={file.name: file.checksum},
            urls={file.name: address},
            retry_if_failed=RETRIES,
        )
        with writing(folder):
            try:
                return Path(there.fetch(file.name, downloader=_downloader(file)))
            except (RequestException, ValueError) as problem:
                problems.append(f"{address}: {problem}")
    raise Unavailable("; ".join(problems))


def _downloader(file: File) -> pooch.HTTPDownloader:
    headers = {"User-Agent": "dprepro"}
    return pooch.HTTPDownloader(progressbar=_Progress(file), timeout=TIMEOUT, headers=headers)


class _Progress:
    """What pooch takes for a progress bar: a line now and then, and an end to what is too long.

    pooch counts whole chunks, so that the last one may reach beyond the file.
    """

    def __init__(self, file: File):
        self.file, self.total, self.received, self.printed = file, 0, 0, time.monotonic()

    def update(self, size: int) -> None:
        if self.received > self.file.size:
            raise ValueError(f"sends more than {self.file.size} bytes")
        self.received += size
        if time.monotonic() - self.printed >= INTERVAL:
            self.printed = time.monotonic()
            print(f"{self.file.name}: {self.received / 1e6:.1f} of {self.file.size / 1e6:.1f} MB", flush=True)

    def reset(self) -> None:
        self.received = 0

    def close(self) -> None:
        self.received = 0


@contextmanager
def _alone(downloads: Path) -> Iterator[None]:
    """Keep a second process from downloading the same files."""
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
