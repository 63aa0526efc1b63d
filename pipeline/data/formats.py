"""Readers of the official file formats. A truncated or corrupt file is one line naming it.

Formats: idx as on MNIST's page, the binary layout of https://www.cs.toronto.edu/~kriz/cifar.html, and the CSV
of Zhang et al. 2015 (class, title, description; every field quoted, no header).
"""

import csv
import gzip
import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pipeline.data.catalog import Format
from pipeline.errors import UserError, reading, shown
from pipeline.limits import IDX_BYTES

_PIXELS = 3 * 32 * 32  # of a CIFAR image: all red, then all green, then all blue values, row by row
_CLASSES = {"cifar10": 10, "cifar100": 100, "ag-news": 4}
_UNSIGNED_BYTE = 8  # idx's code for the only type these sets use


@dataclass(frozen=True)
class Examples:
    """Examples of one part of a raw data set, in its own order."""

    # images, uint8 (N, C, H, W); features, float32 (N, D) or (N, C, H, W); or texts, objects of type str (N,)
    inputs: np.ndarray
    labels: np.ndarray  # int64 (N,)


def read(form: Format, paths: Sequence[Path]) -> Examples:
    """Read one part (the training or the test files) of a raw data set.

    Raises:
        UserError: a file is missing, truncated or not in the format.
    """
    if form == "idx":
        images, labels = (read_idx(path) for path in paths)
        if len(images) != len(labels):
            raise UserError(f"{paths[0]}: {len(images)} images, but {paths[1]} has {len(labels)} labels")
        return Examples(images[:, None], labels.astype(np.int64))
    if form == "ag-news":
        return read_csv(paths[0])
    parts = [read_cifar(path, form) for path in paths]
    return Examples(
        np.concatenate([part.inputs for part in parts]), np.concatenate([part.labels for part in parts])
    )


def read_idx(path: Path) -> np.ndarray:
    """A gzipped idx file of unsigned bytes, in the shape its header gives; no more than that is unpacked."""
    try:
        with gzip.open(path) as file:
            head = file.read(4)
            if len(head) < 4 or head[:2] != b"\0\0" or head[2] != _UNSIGNED_BYTE:
                raise UserError(f"{path}: not an idx file of unsigned bytes")
            shape = tuple(int(size) for size in np.frombuffer(file.read(4 * head[3]), ">u4"))
            size = math.prod(shape)
            if len(shape) != head[3] or size > IDX_BYTES:
                raise UserError(f"{path}: truncated or corrupt: its header says {shown(shape)}")
            content = file.read(size + 1)
    except (EOFError, zlib.error, gzip.BadGzipFile, ValueError) as problem:
        raise UserError(f"{path}: truncated or corrupt: {problem}") from problem
    except OSError as problem:
        raise UserError(f"{path}: can't be read: {problem.strerror}") from problem
    if len(content) != size:
        start = 4 + 4 * len(shape)
        raise UserError(
            f"{path}: truncated or corrupt: {start + len(content)} bytes, its header says {start + size}"
        )
    return np.frombuffer(content, np.uint8).reshape(shape)


def read_cifar(path: Path, form: Format) -> Examples:
    """Images (N, 3, 32, 32) of a binary CIFAR file with their labels; of CIFAR-100's labels the fine ones."""
    label_bytes = 2 if form == "cifar100" else 1  # CIFAR-100 puts the coarse label first
    content = np.frombuffer(_bytes(path), np.uint8)
    record = label_bytes + _PIXELS
    if len(content) == 0 or len(content) % record:
        raise UserError(f"{path}: truncated or corrupt: {len(content)} bytes, no multiple of {record}")
    rows = content.reshape(-1, record)
    labels = rows[:, label_bytes - 1].astype(np.int64)
    if labels.max() >= _CLASSES[form]:
        raise UserError(f"{path}: corrupt: label {labels.max()}; allowed: 0 to {_CLASSES[form] - 1}")
    return Examples(rows[:, label_bytes:].reshape(-1, 3, 32, 32), labels)


def read_csv(path: Path) -> Examples:
    """Texts (title and description joined by a space, as torchtext does) and labels from 0 of AG News."""
    texts, labels = [], []
    try:
        lines = _bytes(path).decode().splitlines(keepends=True)
        for number, row in enumerate(csv.reader(lines, strict=True), 1):
            if len(row) != 3 or row[0] not in ("1", "2", "3", "4"):
                raise UserError(f"{path}: row {number}: not a class from 1 to 4, a title and a description")
            labels.append(int(row[0]) - 1)
            texts.append(f"{row[1]} {row[2]}")
    except (UnicodeDecodeError, csv.Error) as problem:
        raise UserError(f"{path}: truncated or corrupt: {problem}") from problem
    if not texts:
        raise UserError(f"{path}: truncated or corrupt: it is empty")
    return Examples(np.array(texts, object), np.array(labels, np.int64))


def _bytes(path: Path) -> bytes:
    with reading(path):
        return path.read_bytes()
