"""One file from several addresses over HTTP: resumed where it broke, and believed only by its checksum."""

import http.client
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pipeline.data.catalog import File
from pipeline.data.transfer import fault
from pipeline.errors import writing

TIMEOUT = 30.0  # seconds without a single byte before a connection counts as dropped
ATTEMPTS = 4  # connections in a row to one address that bring nothing new
PAUSE = 1.0  # seconds before the second attempt; doubled before each further one
INTERVAL = 10.0  # seconds between two plain lines of progress
CHUNK = 1 << 16

Show = Callable[[int], None]  # told how many bytes are here


class Unavailable(Exception):
    """No address gave the file; the text says what each of them did."""


class _Dropped(Exception):
    """The transfer broke; the same address may bring the rest."""


class _Refused(Exception):
    """This address will not bring the file."""


def download(addresses: Sequence[str], file: File, path: Path) -> None:
    """Bring ``file`` to ``path``. Bytes wait in ``PATH.part`` until they are complete and checked.

    Raises:
        Unavailable: no address gave these bytes. What arrived is kept for the next run.
        UserError: ``path`` can't be written.
    """
    if path.exists() and fault(path, file) is None:
        return
    part = path.with_name(path.name + ".part")
    problems = []
    with _progress(file) as show:
        for address in addresses:
            try:
                _from(address, file, part, show)
            except _Refused as problem:
                problems.append(f"{address}: {problem}")
            else:
                with writing(path):
                    part.replace(path)
                return
    raise Unavailable("; ".join(problems))


def _from(address: str, file: File, part: Path, show: Show) -> None:
    """Fill ``part`` from one address, as often as that brings it forward."""
    most, attempt = _size(part), 1
    while True:
        try:
            _connect(address, file, part, show)
            return
        except _Dropped as problem:
            if _size(part) > most:
                most, attempt = _size(part), 1
                continue
            if attempt == ATTEMPTS:
                raise _Refused(str(problem)) from problem
            time.sleep(PAUSE * 2 ** (attempt - 1))
            attempt += 1


def _connect(address: str, file: File, part: Path, show: Show) -> None:
    """One connection: ask for what is missing, append it, check the whole."""
    start = _size(part)
    if start < file.size:
        with _open(address, start) as response:
            resumed = response.status == http.client.PARTIAL_CONTENT
            if resumed and not response.headers.get("Content-Range", "").startswith(f"bytes {start}-"):
                raise _Refused(f"sent another range than asked for: {response.headers.get('Content-Range')}")
            if not resumed:
                start = 0  # the server ignores Range and sends everything
            if response.length is not None and start + response.length != file.size:
                raise _Refused(f"offers {start + response.length} bytes instead of {file.size}")
            _receive(response, part, start, file.size, show)
    if wrong := fault(part, file):
        with writing(part):
            part.unlink()
        # Bytes from an earlier connection may be the wrong ones, so this address gets a clean start first.
        raise (_Dropped if start else _Refused)(f"wrong bytes: {wrong}")


def _open(address: str, start: int) -> http.client.HTTPResponse:
    headers = {"User-Agent": "dprepro"} | ({"Range": f"bytes={start}-"} if start else {})
    try:
        response = urllib.request.urlopen(urllib.request.Request(address, headers=headers), timeout=TIMEOUT)
    except urllib.error.HTTPError as problem:
        raise _Refused(f"HTTP {problem.code} {problem.reason}") from problem
    except (OSError, http.client.HTTPException) as problem:
        raise _Refused(str(getattr(problem, "reason", problem)) or type(problem).__name__) from problem
    assert isinstance(response, http.client.HTTPResponse)
    return response


def _receive(response: http.client.HTTPResponse, part: Path, start: int, size: int, show: Show) -> None:
    """Write the body behind the ``start`` bytes of ``part`` that stay."""
    here = start
    with writing(part), part.open("ab") as output:
        output.truncate(start)
        for chunk in _body(response):
            output.write(chunk)
            here += len(chunk)
            show(here)
            if here > size:
                break
    if here < size:
        raise _Dropped(f"connection ended after {here} of {size} bytes")


def _body(response: http.client.HTTPResponse) -> Iterator[bytes]:
    """The body until its end or until the connection breaks."""
    try:
        while chunk := response.read1(CHUNK):
            yield chunk
    except (OSError, http.client.HTTPException):
        return  # what has come is kept; its length tells that it is not all


def _size(part: Path) -> int:
    return part.stat().st_size if part.exists() else 0


@contextmanager
def _progress(file: File) -> Iterator[Show]:
    """A bar on a terminal; elsewhere a plain line now and then."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    if console.is_terminal:
        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
        with Progress(*columns, console=console) as bar:
            task = bar.add_task(file.name, total=file.size)
            yield lambda here: bar.update(task, completed=here)
        return
    last = time.monotonic()

    def show(here: int) -> None:
        nonlocal last
        if time.monotonic() - last >= INTERVAL or here == file.size:
            last = time.monotonic()
            console.print(f"{file.name}: {here / 1e6:.1f} of {file.size / 1e6:.1f} MB", highlight=False)

    yield show
