"""One file from a server that does all that servers do."""

import socket

import pytest

from pipeline.data import download as module
from pipeline.data.catalog import File
from pipeline.data.download import Unavailable, download
from pipeline.files import digest

CONTENT = bytes(range(256)) * 20  # 5120 bytes
FILE = File("file.gz", len(CONTENT), digest(CONTENT))


@pytest.fixture
def address(server) -> str:
    server.files["/good/file.gz"] = CONTENT
    return f"{server.address}/good/file.gz"


def test_a_file_arrives_and_is_not_asked_for_twice(server, address, tmp_path):
    for _ in range(2):
        assert download([address], FILE, tmp_path).read_bytes() == CONTENT
    assert server.requests == ["/good/file.gz"]
    assert [each.name for each in tmp_path.iterdir()] == ["file.gz"]


def test_wrong_bytes_left_by_an_earlier_run_are_replaced(server, address, tmp_path):
    (tmp_path / "file.gz").write_bytes(b"x" * 3000)
    assert download([address], FILE, tmp_path).read_bytes() == CONTENT


def test_next_address_after_404_error_truncation_and_wrong_bytes(server, address, tmp_path):
    server.files |= {f"/{name}/file.gz": CONTENT for name in ("busy", "cut")}
    server.files["/wrong/file.gz"] = CONTENT[::-1]
    server.files["/long/file.gz"] = CONTENT + bytes(5000)
    server.faults |= {"/busy/file.gz": "error", "/cut/file.gz": "drop"}
    bad = [f"{server.address}/{name}/file.gz" for name in ("none", "busy", "cut", "long", "wrong")]
    assert download([*bad, address], FILE, tmp_path).read_bytes() == CONTENT
    assert server.requests == [
        f"/{name}/file.gz" for name in ("none", "busy", "cut", "long", "wrong", "good")
    ]
    with pytest.raises(Unavailable) as caught:
        download(bad, FILE, tmp_path / "others")
    for reason in ("404", "503", "IncompleteRead", "sends more than 5120 bytes", "does not match the known"):
        assert reason in str(caught.value)
    assert list((tmp_path / "others").iterdir()) == []


def test_a_broken_connection_is_tried_again(server, address, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "RETRIES", 2)
    monkeypatch.setattr("pooch.core.time.sleep", lambda seconds: server.faults.clear())
    server.faults["/good/file.gz"] = "drop"
    assert download([address], FILE, tmp_path).read_bytes() == CONTENT
    assert len(server.requests) == 2


def test_a_server_that_never_ends_is_cut_off(server, address, tmp_path):
    server.faults["/good/file.gz"] = "endless"
    with pytest.raises(Unavailable, match="sends more than 5120 bytes"):
        download([address], FILE, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_an_unreachable_and_a_silent_server_are_given_up(server, address, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "TIMEOUT", 0.2)
    with socket.socket() as silent:  # accepts connections in its backlog and never answers
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        quiet = f"http://127.0.0.1:{silent.getsockname()[1]}/file.gz"
        with pytest.raises(Unavailable, match=r"timed out.*refused"):
            download([quiet, "http://127.0.0.1:9/file.gz"], FILE, tmp_path)
        assert download([quiet, address], FILE, tmp_path).read_bytes() == CONTENT
