"""Readers: examples as the formats have them, and one line of a file that is in none."""

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest

from dprepro.pipeline.data import formats
from dprepro.pipeline.data.catalog import Format
from tests.refusal import refusal_of


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
