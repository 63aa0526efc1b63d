"""Readers: a damaged file is one line that names it."""

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest

from pipeline.data import formats
from pipeline.errors import UserError


def idx(*shape: int, values: bytes) -> bytes:
    return struct.pack(f">HBB{len(shape)}I", 0, 8, len(shape), *shape) + values


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def zipped(content: bytes) -> bytes:
    """The same bytes in every process that collects these tests: gzip's header has the time in it."""
    return gzip.compress(content, mtime=0)


def test_idx(tmp_path):
    images = write(tmp_path / "images.gz", gzip.compress(idx(2, 2, 3, values=bytes(range(12)))))
    labels = write(tmp_path / "labels.gz", gzip.compress(idx(2, values=b"\x07\x01")))
    examples = formats.read("idx", [images, labels])
    assert examples.inputs.shape == (2, 1, 2, 3)
    assert examples.inputs.dtype == np.uint8
    assert examples.inputs[1, 0, 1].tolist() == [9, 10, 11]
    assert examples.labels.tolist() == [7, 1]
    assert examples.labels.dtype == np.int64


WHOLE = zipped(idx(2, 2, 3, values=bytes(12)))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (WHOLE[:-12], "truncated or corrupt"),
        (WHOLE[:-1], "truncated or corrupt"),
        (b"<html>", "truncated or corrupt"),
        (b"", "not an idx file"),
        (zipped(b"\0\0\x08"), "not an idx file"),
        (zipped(idx(2, 2, 3, values=bytes(11))), "27 bytes, its header says 28"),
        (zipped(idx(2, 2, 3, values=bytes(13))), "29 bytes, its header says 28"),
        (zipped(b"\0\0\x0d\x01" + bytes(8)), "not an idx file of unsigned bytes"),
    ],
)
def test_damaged_idx(tmp_path, content, reason):
    with pytest.raises(UserError, match=rf"images\.gz: .*{reason}"):
        formats.read_idx(write(tmp_path / "images.gz", content))


def test_idx_parts_that_do_not_belong_together(tmp_path):
    images = write(tmp_path / "images.gz", WHOLE)
    labels = write(tmp_path / "labels.gz", gzip.compress(idx(3, values=bytes(3))))
    with pytest.raises(UserError, match=r"images\.gz: 2 images, but .*labels\.gz has 3 labels"):
        formats.read("idx", [images, labels])


def test_cifar(tmp_path):
    image = np.arange(3072).astype(np.uint8)  # 1024 red, 1024 green, 1024 blue values
    ten = write(tmp_path / "1.bin", b"\x03" + image.tobytes())
    both = formats.read("cifar10", [ten, ten])
    assert both.labels.tolist() == [3, 3]
    assert both.inputs.shape == (2, 3, 32, 32)
    assert both.inputs[0, 1, 2, 3] == image[1024 + 2 * 32 + 3]
    hundred = formats.read_cifar(write(tmp_path / "train.bin", b"\x13\x63" + image.tobytes()), "cifar100")
    assert hundred.labels.tolist() == [99]  # the fine label, not the coarse one
    assert np.array_equal(hundred.inputs[0], both.inputs[0])


@pytest.mark.parametrize(
    ("content", "reason"),
    [(b"", "0 bytes"), (bytes(3072), "3072 bytes"), (b"\x0a" + bytes(3072), "label 10; allowed: 0 to 9")],
)
def test_damaged_cifar(tmp_path, content, reason):
    with pytest.raises(UserError, match=rf"1\.bin: .*corrupt: {reason}"):
        formats.read_cifar(write(tmp_path / "1.bin", content), "cifar10")


def test_csv(tmp_path):
    content = b'"3","A ""quoted"" title","Some, text\\n"\n"1","",""\n'
    examples = formats.read("ag-news", [write(tmp_path / "a.csv", content)])
    assert examples.inputs.tolist() == ['A "quoted" title Some, text\\n', " "]
    assert examples.labels.tolist() == [2, 0]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "empty"),
        (b'"1","a","b"\n"5","a","b"\n', "row 2: not a class from 1 to 4"),
        (b'"1","a"\n', "row 1"),
        (b'"1","a","cut in the mid', "truncated or corrupt"),
        (b'"1","a","\xff"\n', "truncated or corrupt"),
    ],
)
def test_damaged_csv(tmp_path, content, reason):
    with pytest.raises(UserError, match=rf"a\.csv: .*{reason}"):
        formats.read_csv(write(tmp_path / "a.csv", content))


def test_a_missing_file(tmp_path):
    for form in ("idx", "cifar10", "ag-news"):
        with pytest.raises(UserError, match="nothing: can't be read: No such file"):
            formats.read(form, [tmp_path / "nothing"] * (2 if form == "idx" else 1))
