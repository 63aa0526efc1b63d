"""One file from a server that does all that servers do."""

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
