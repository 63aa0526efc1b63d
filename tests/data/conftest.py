"""Small stand-ins for the official files: synthetic ones, pinned in the catalogue for one test."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from dprepro.pipeline.data import catalog, sources, synthetic
from dprepro.pipeline.data.catalog import Edition, Entry, File
from dprepro.pipeline.files import digest_file
from dprepro.pipeline.params import Settings, parse

COUNTS = {
    "mnist": (300, 60),
    "kmnist": (80, 20),
    "cifar10": (60, 12),
    "cifar100": (100, 20),
    "ag-news": (200, 40),
}


def pin(path: Path) -> File:
    return File(path.name, path.stat().st_size, digest_file(path))


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Entry, Path]]:
    """small(key, bases=...): files whose bytes become the official edition, and where they lie."""

    def make(key: str, **routes) -> tuple[Entry, Path]:
        entry = catalog.catalogued(key)
        folder = tmp_path / "published" / key
        folder.mkdir(parents=True)
        synthetic.write(entry, *COUNTS[key], folder)
        official = entry.editions["official"]
        train, test = (
            tuple(pin(folder / file.name) for file in part) for part in (official.train, official.test)
        )
        edition = Edition(train, test, **routes)
        entry = replace(entry, editions={**entry.editions, "official": edition})
        monkeypatch.setitem(catalog.catalog(), key, entry)
        return entry, folder

    return make


@pytest.fixture
def params() -> Callable[..., Settings]:
    """params(source=..., data=..., **raw): settings with every raw data set in its synthetic size."""

    def make(source: dict | None = None, data: dict | None = None, **raw: dict) -> Settings:
        sizes = {key: {"train": train, "test": test} for key, (train, test) in COUNTS.items()}
        sizes.update({key.replace("_", "-"): value for key, value in raw.items()})
        return parse(
            {"source": source or {"kind": "synthetic"}, "raw": sizes, "data": data or {}, "rows": {}}
        )

    return make


@dataclass
class Server:
    """Files by path, and per path how the server misbehaves."""

    address: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    # path -> drop (close after 1000 bytes), error (503)
    faults: dict[str, str] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)  # paths

    def add(self, folder: Path, at: str) -> str:
        """Serve a folder's files under /AT/; return that address."""
        self.files.update({f"/{at}/{path.name}": path.read_bytes() for path in folder.iterdir()})
        return f"{self.address}/{at}/"


class _Handler(BaseHTTPRequestHandler):
    state: Server

    def do_GET(self) -> None:
        state = self.state
        state.requests.append(self.path)
        fault = state.faults.get(self.path)
        if self.path not in state.files or fault == "error":
            self.send_error(503 if fault else 404)
            return
        body = state.files[self.path]
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[:1000] if fault == "drop" else body)

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(sources, "TIMEOUT", 2.0)
    monkeypatch.setattr(sources, "RETRIES", 0)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    state = Server()
    http = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"state": state}))
    state.address = f"http://127.0.0.1:{http.server_port}"
    threading.Thread(target=http.serve_forever, args=(0.01,), daemon=True).start()
    yield state
    http.shutdown()
    http.server_close()
