"""The source `official`: the publishers' addresses, one after the other, until the right bytes are here."""

import time
from collections.abc import Sequence
from pathlib import Path

import pooch
from requests import RequestException

from pipeline.data import transfer
from pipeline.data.catalog import OFFICIAL, Edition, Entry, File
from pipeline.data.transfer import Unavailable
from pipeline.errors import UserError, writing
from pipeline.files import locked

TIMEOUT = 30.0  # seconds without a single byte before a connection counts as dropped
RETRIES = 3  # of one address
INTERVAL = 10.0  # seconds between two lines of progress

# it announces every file that it downloads
pooch.get_logger().setLevel("WARNING")


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
    with locked(downloads / ".lock", "another `dprepro fetch` is downloading here; wait for it"):
        try:
            transfer.collect(edition, lambda file, addresses: download(addresses, file, downloads), target)
        except Unavailable as problem:
            raise UserError(
                f"{entry.title}: can't be downloaded: {problem}. "
                "Run it again, or give a folder with the files: --mirror DIR"
            ) from problem


def download(addresses: Sequence[str], file: File, folder: Path) -> Path:
    """Bring ``file`` into ``folder`` from the first address that has these very bytes; returns its path.

    Raises:
        Unavailable: no address gave these bytes; the text says what each of them did.
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
