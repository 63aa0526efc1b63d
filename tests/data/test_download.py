"""One file from a server that does all that servers do."""

import re
import socket
from pathlib import Path

import pytest

from pipeline.data import download as module
from pipeline.data.catalog import File
from pipeline.data.download import Unavailable, download
from pipeline.errors import UserError
from pipeline.files import digest

CONTENT = bytes(range(256)) * 20  # 5120 bytes
FILE = File("file.gz", len(CONTENT), digest(CONTENT))


@pytest.fixture
def address(server) -> str:
    server.files["/good/file.gz"] = CONTENT
    return f"{server.address}/good/file.gz"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "file.gz"


def test_a_file_arrives_and_is_not_asked_for_twice(server, address, path):
    download([address], FILE, path)
    download([address], FILE, path)
    assert path.read_bytes() == CONTENT
    assert server.requests == [("/good/file.gz", None)]
    assert [each.name for each in path.parent.iterdir()] == ["file.gz"]


def test_dropped_connections_are_resumed_where_they_broke(server, address, path):
    server.faults["/good/file.gz"] = "drop"
    download([address], FILE, path)
    assert path.read_bytes() == CONTENT
    assert [wanted for _, wanted in server.requests] == [None, *(f"bytes={n}000-" for n in range(1, 6))]
    assert server.sent == len(CONTENT)


def test_a_later_run_continues_what_an_earlier_one_left(server, address, path):
    path.with_name("file.gz.part").write_bytes(CONTENT[:3000])
    download([address], FILE, path)
    assert path.read_bytes() == CONTENT
    assert server.requests == [("/good/file.gz", "bytes=3000-")]
    assert server.sent == len(CONTENT) - 3000


def test_a_complete_part_of_a_killed_run_needs_no_network(server, address, path):
    path.with_name("file.gz.part").write_bytes(CONTENT)
    download([address], FILE, path)
    assert path.read_bytes() == CONTENT
    assert server.requests == []


@pytest.mark.parametrize("left", [b"x" * 3000, b"x" * len(CONTENT), b"x" * (len(CONTENT) + 1)])
def test_wrong_bytes_left_by_an_earlier_run_are_thrown_away(server, address, path, left):
    path.with_name("file.gz.part").write_bytes(left)
    download([address], FILE, path)
    assert path.read_bytes() == CONTENT
    assert server.requests[-1] == ("/good/file.gz", None)


def test_a_server_that_ignores_range_sends_everything_again(server, address, path):
    server.faults["/good/file.gz"] = "ignore-range"
    server.amount = len(CONTENT)
    path.with_name("file.gz.part").write_bytes(b"x" * 3000)
    download([address], FILE, path)
    assert path.read_bytes() == CONTENT
    assert server.sent == len(CONTENT)


def test_a_server_that_ignores_range_and_always_drops_is_given_up(server, address, path):
    server.faults["/good/file.gz"] = "ignore-range"
    with pytest.raises(Unavailable, match=re.escape("connection ended after 1000 of 5120 bytes")):
        download([address], FILE, path)
    assert len(server.requests) == 1 + module.ATTEMPTS
    assert (
        path.with_name("file.gz.part").stat().st_size == 1000
    )  # for the next run, from another address perhaps
    assert not path.exists()


def test_next_address_after_404_error_truncation_and_wrong_bytes(server, address, path):
    server.files |= {f"/{name}/file.gz": CONTENT for name in ("busy", "short")}
    server.files["/wrong/file.gz"] = CONTENT[::-1]
    server.files["/long/file.gz"] = CONTENT + b"x"
    server.faults |= {"/busy/file.gz": "error", "/short/file.gz": "short"}
    bad = [f"{server.address}/{name}/file.gz" for name in ("none", "busy", "short", "long", "wrong")]
    download([*bad, address], FILE, path)
    assert path.read_bytes() == CONTENT
    assert [each for each, _ in server.requests] == [
        f"/{name}/file.gz" for name in ("none", "busy", "short", "long", "wrong", "good")
    ]
    with pytest.raises(Unavailable) as caught:
        download(bad, FILE, path.with_name("other.gz"))
    text = str(caught.value)
    for reason in ("HTTP 404", "HTTP 503", "offers 1000 bytes", "offers 5121 bytes", "wrong bytes: sha256:"):
        assert reason in text


def test_a_server_that_sends_another_range_is_refused(server, address, path):
    server.faults["/good/file.gz"] = "shifted"
    path.with_name("file.gz.part").write_bytes(CONTENT[:3000])
    with pytest.raises(Unavailable, match="sent another range than asked for: bytes 2999-5119/5120"):
        download([address], FILE, path)


def test_a_server_that_never_ends_is_cut_off(server, address, path):
    server.faults["/good/file.gz"] = "endless"
    with pytest.raises(Unavailable, match=r"wrong bytes: .* bytes instead of 5120"):
        download([address], FILE, path)
    assert not path.with_name("file.gz.part").exists()


def test_an_unreachable_and_a_silent_server_are_given_up(server, address, path, monkeypatch):
    monkeypatch.setattr(module, "TIMEOUT", 0.2)
    with socket.socket() as silent:  # accepts connections in its backlog and never answers
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        quiet = f"http://127.0.0.1:{silent.getsockname()[1]}/file.gz"
        download([quiet, "http://127.0.0.1:9/file.gz", address], FILE, path)
        with pytest.raises(Unavailable, match=r"timed out.*refused"):
            download([quiet, "http://127.0.0.1:9/file.gz"], FILE, path.with_name("other.gz"))
    assert path.read_bytes() == CONTENT


def test_a_folder_that_cannot_be_written_is_one_line(server, address, tmp_path):
    (tmp_path / "blocked").write_text("")
    with pytest.raises(UserError, match=r"blocked.*can't be written"):
        download([address], FILE, tmp_path / "blocked" / "file.gz")
