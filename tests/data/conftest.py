"""Small stand-ins for the official files: synthetic ones, pinned in the catalogue for one test."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

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


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """A server of ``files`` by path, with ``requests`` and, by path, ``faults``: 'drop' early, or 'error'."""
    for name, value in (("TIMEOUT", 2.0), ("RETRIES", 0)):
        monkeypatch.setattr(sources, name, value)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    state = SimpleNamespace(files={}, faults={}, requests=[])

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            state.requests.append(self.path)
            fault, body = state.faults.get(self.path), state.files.get(self.path)
            if body is None or fault == "error":
                self.send_error(503 if fault else 404)
                return
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body[:1000] if fault == "drop" else body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        state.address = f"http://127.0.0.1:{http.server_port}"
        threading.Thread(target=http.serve_forever, args=(0.01,), daemon=True).start()
        yield state
        http.shutdown()
