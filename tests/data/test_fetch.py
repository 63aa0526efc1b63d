"""Raw files: the same folder from every source, examples as formats have them, or one line."""

import gzip
import io
import json
import shutil
import struct
import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dprepro.pipeline.data import catalog, formats, sources
from dprepro.pipeline.data.catalog import Archive, Edition, File, Format
from dprepro.pipeline.data.fetch import DOWNLOADS, fetch
from dprepro.pipeline.data.raw import RAW
from dprepro.pipeline.data.sources import Unavailable, download
from dprepro.pipeline.files import digest, digest_file
from tests.refusal import refusal_of

OFFICIAL = {"kind": "official"}
CONTENT = bytes(range(256)) * 20  # 5120 bytes
FILE = File("file.gz", len(CONTENT), digest(CONTENT))


def test_next_address_after_404_error_truncation_and_wrong_bytes(server, tmp_path):
    names = ("none", "busy", "cut", "wrong")
    server.files |= {f"/{name}/file.gz": CONTENT for name in ("busy", "cut", "good")}
    server.files["/wrong/file.gz"] = CONTENT[::-1]
    server.faults |= {"/busy/file.gz": "error", "/cut/file.gz": "drop"}
    bad = [f"{server.address}/{name}/file.gz" for name in names]
    good = f"{server.address}/good/file.gz"
    assert download([*bad, good], FILE, tmp_path).read_bytes() == CONTENT
    assert server.requests == [f"/{name}/file.gz" for name in (*names, "good")]
    with pytest.raises(Unavailable) as caught:
        download(bad, FILE, tmp_path / "others")
    for reason in ("404", "503", "IncompleteRead", "does not match the known"):
        assert reason in str(caught.value)
    assert list((tmp_path / "others").iterdir()) == []


def pack(archive: Path, folder: Path, inside: str, extra: list[tarfile.TarInfo] | None = None) -> File:
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(archive, "w:gz") as tar:
        for member in extra or []:
            tar.addfile(member, io.BytesIO(b"evil") if member.isfile() else None)
        for path in sorted(folder.iterdir()):
            tar.add(path, f"{inside}/{path.name}")
    return File(archive.name, archive.stat().st_size, digest_file(archive))


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_official_mirror_and_archive_give_the_same_folder(small, params, server, tmp_path):
    """An archive is the second way, where files have no address or theirs fails."""
    entry, published = small("cifar10", bases=(f"{server.address}/gone/",))
    inside = "cifar-10-batches-bin"
    file = pack(tmp_path / "pub/cifar-10-binary.tar.gz", published, inside)
    server.files |= {f"/kriz/{name}": body for name, body in content(tmp_path / "pub").items()}
    address = f"{server.address}/kriz/{file.name}"
    edition = replace(entry.editions["official"], archives=(Archive(file, inside, (address,)),))
    catalog.catalog()["cifar10"] = replace(entry, editions={"official": edition})  # undone with the fixture's

    results = {
        "official": fetch("cifar10", params(OFFICIAL), tmp_path / "a"),
        "members": fetch("cifar10", params(OFFICIAL), tmp_path / "b", published),
        "archive": fetch("cifar10", params(OFFICIAL), tmp_path / "c", tmp_path / "pub"),
    }
    assert len(server.requests) == 2
    folders = [content(each.folder) for each in results.values()]
    assert folders[0] == folders[1] == folders[2]
    assert set(folders[0]) == {file.name for file in edition.files} | {"source.json"}
    source = json.loads(folders[0]["source.json"])
    assert source == {"data": "cifar10", "edition": "official", "files": results["official"].files}


def test_downloads_survive_what_dvc_does_to_outs(small, params, server, tmp_path):
    _, published = small("mnist", bases=(f"{server.address}/here/",))
    server.files |= {f"/here/{name}": body for name, body in content(published).items()}
    first = fetch("mnist", params(OFFICIAL), tmp_path)
    shutil.rmtree(first.folder)
    assert fetch("mnist", params(OFFICIAL), tmp_path) == first
    assert len(server.requests) == 4
    assert (tmp_path / DOWNLOADS / "mnist").is_dir()


def test_no_address_works(small, params, server, tmp_path):
    small("mnist", bases=(f"{server.address}/one/", f"{server.address}/two/"))
    line = refusal_of(lambda: fetch("mnist", params(OFFICIAL), tmp_path))
    for part in ("MNIST", "/one/train-images-idx3-ubyte.gz: 404", "/two/train-images", "--mirror"):
        assert part in line
    assert not (tmp_path / RAW / "mnist").exists()


def test_a_hostile_archive_writes_nothing_but_the_catalogued_members(small, tmp_path):
    entry, published = small("cifar10")
    link = tarfile.TarInfo("cifar-10-batches-bin/data_batch_1.bin")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    outside = tarfile.TarInfo("../outside")
    outside.size = 4
    path = tmp_path / "in" / "evil.tar.gz"
    file = pack(path, published, "./cifar-10-batches-bin", [link, outside])
    target = tmp_path / "in" / "target"
    target.mkdir()
    files = entry.editions["official"].files
    sources.extract(path, Archive(file, "cifar-10-batches-bin", ()), files, target)
    assert content(target) == content(published)
    assert not (tmp_path / "in" / "outside").exists()


def test_archives_that_are_cut_or_lack_a_member(small, tmp_path):
    entry, published = small("cifar10")
    files = entry.editions["official"].files
    (published / "test_batch.bin").unlink()
    path = tmp_path / "a.tar.gz"
    archive = Archive(pack(path, published, "bin"), "bin", ())
    lacking = refusal_of(lambda: sources.extract(path, archive, files, tmp_path))
    assert lacking.endswith("a.tar.gz: lacks bin/test_batch.bin")
    path.write_bytes(path.read_bytes()[:-2000])
    cut = refusal_of(lambda: sources.extract(path, archive, files, tmp_path))
    assert "a.tar.gz: truncated or corrupt" in cut


def test_what_a_mirror_lacks_is_named_and_the_old_folder_stays(small, params, tmp_path):
    _, published = small("mnist")
    before = content(fetch("mnist", params(OFFICIAL), tmp_path, published).folder)

    def refused(mirror: Path = published) -> str:
        return refusal_of(lambda: fetch("mnist", params(OFFICIAL), tmp_path, mirror))

    wrong = published / "t10k-labels-idx1-ubyte.gz"
    good = wrong.read_bytes()
    wrong.write_bytes(good[:-1] + b"x")
    assert "t10k-labels-idx1-ubyte.gz: not the file of MNIST: sha256:" in refused()
    wrong.write_bytes(good[:-1])
    assert f"not the file of MNIST: {len(good) - 1} bytes instead of {len(good)}" in refused()
    wrong.unlink()
    assert "lacks t10k-labels-idx1-ubyte.gz of MNIST; looked in its ., mnist" in refused()
    assert "no such folder" in refused(tmp_path / "nowhere")
    assert content(tmp_path / RAW / "mnist") == before
    assert [path.name for path in (tmp_path / RAW).iterdir()] == ["mnist"]


def test_other_editions_are_taken_only_by_name(small, params, server, tmp_path):
    entry, published = small("cifar100")
    official = entry.editions["official"]
    other = Edition(official.train, official.test, note="in another order")
    missing = replace(official, train=(File("train.bin", 1, "sha256:0"),))
    catalog.catalog()["cifar100"] = replace(entry, editions={"official": missing, "reordered": other})
    reordered = params(OFFICIAL, cifar100={"edition": "reordered"})

    line = refusal_of(lambda: fetch("cifar100", params(OFFICIAL), tmp_path, published))
    assert "raw.cifar100.edition in params.yaml may name: official, reordered" in line
    assert fetch("cifar100", reordered, tmp_path, published).edition == "reordered"
    line = refusal_of(lambda: fetch("cifar100", reordered, tmp_path))
    assert "this edition is not published anywhere" in line
    mine = params(OFFICIAL, cifar100={"edition": "mine"})
    line = refusal_of(lambda: fetch("cifar100", mine, tmp_path, published))
    assert "raw.cifar100.edition: 'mine' is not known; allowed: official, reordered" in line


def test_synthetic_ignores_a_mirror_and_needs_counts(params, tmp_path):
    assert fetch("mnist", params(), tmp_path, tmp_path / "nowhere").edition == "synthetic"
    line = refusal_of(lambda: fetch("mnist", params(mnist={"train": 5}), tmp_path))
    assert "raw.mnist.test: missing; synthetic examples need a count" in line


def idx(*shape: int, values: bytes) -> bytes:
    return gzip.compress(struct.pack(f">HBB{len(shape)}I", 0, 8, len(shape), *shape) + values, mtime=0)


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def test_idx(tmp_path):
    images = write(tmp_path / "images.gz", idx(2, 2, 3, values=bytes(range(12))))
    labels = write(tmp_path / "labels.gz", idx(2, values=b"\x07\x01"))
    examples = formats.read("idx", [images, labels])
    assert examples.inputs.shape == (2, 1, 2, 3)
    assert examples.inputs.dtype == np.uint8
    assert examples.inputs[1, 0, 1].tolist() == [9, 10, 11]
    assert examples.labels.tolist() == [7, 1]
    assert examples.labels.dtype == np.int64


def test_cifar(tmp_path):
    image = np.arange(3072).astype(np.uint8)  # 1024 red, 1024 green, 1024 blue values
    ten = write(tmp_path / "1.bin", b"\x03" + image.tobytes())
    both = formats.read("cifar10", [ten, ten])
    assert both.labels.tolist() == [3, 3]
    assert both.inputs.shape == (2, 3, 32, 32)
    assert both.inputs[0, 1, 2, 3] == image[1024 + 2 * 32 + 3]
    hundred = formats.read("cifar100", [write(tmp_path / "train.bin", b"\x13\x63" + image.tobytes())])
    assert hundred.labels.tolist() == [99]  # the fine label, not the coarse one
    assert np.array_equal(hundred.inputs[0], both.inputs[0])


def test_csv(tmp_path):
    content = b'"3","A ""quoted"" title","Some, text\\n"\n"1","",""\n'
    examples = formats.read("ag-news", [write(tmp_path / "a.csv", content)])
    assert examples.inputs.tolist() == ['A "quoted" title Some, text\\n', " "]
    assert examples.labels.tolist() == [2, 0]


@pytest.mark.parametrize(
    ("form", "content"),
    [
        ("idx", b"<html>"),
        ("idx", idx(2, 2, 3, values=bytes(11))),
        ("cifar10", bytes(3072)),
        ("ag-news", b'"1","a"\n'),
        ("ag-news", b'"1","a","cut in the mid'),
        ("ag-news", None),
    ],
)
def test_what_is_in_no_format_is_a_line(tmp_path, form: Format, content: bytes | None):
    paths = [tmp_path / "first", tmp_path / "second"]
    if content is not None:
        for path in paths:
            write(path, content)
    assert f"first, second: not in the format {form!r}" in refusal_of(lambda: formats.read(form, paths))
