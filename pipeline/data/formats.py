"""Readers of the official file formats, for files whose digests have been compared.

The formats are idx, as on MNIST's page; the binary layout of https://www.cs.toronto.edu/~kriz/cifar.html; and
the CSV of Zhang et al. 2015 (class, title, description; every field quoted, no header).
"""

import csv
import gzip
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dprepro.errors import UserError
from dprepro.pipeline.data.catalog import Format

_IMAGE = (3, 32, 32)  # of CIFAR: all red, then all green, then all blue values, row by row


@dataclass(frozen=True)
class Examples:
    """Examples of one part of a raw data set, in their original order."""

    # images, uint8 (N, C, H, W); features, float32 (N, D) or (N, C, H, W); or texts, objects of type str (N,)
    inputs: np.ndarray
    labels: np.ndarray  # int64 (N,) classes, or float32 (N,) numbers in [0, 1]
    people: np.ndarray | None = None  # (N,) str, the person of each example; None: an example is the unit


def read(form: Format, paths: Sequence[Path]) -> Examples:
    """Read one part (the training or the test files) of a raw data set.

    Raises:
        UserError: a file is not in the format.
    """
    try:
        if form == "idx":
            images, labels = map(_read_idx, paths)
            return Examples(images[:, None], labels.astype(np.int64))
        if form == "ag-news":
            return _read_csv(paths[0])
        # CIFAR-100 has a coarse label before the fine one
        parts = [_read_cifar(path, label_bytes=2 if form == "cifar100" else 1) for path in paths]
    except (OSError, EOFError, ValueError, IndexError, csv.Error) as problem:
        names = ", ".join(path.name for path in paths)
        raise UserError(f"{paths[0].parent}: {names}: not in the format {form!r}: {problem}") from problem
    return Examples(
        np.concatenate([part.inputs for part in parts]), np.concatenate([part.labels for part in parts])
    )


def _read_idx(path: Path) -> np.ndarray:
    """Array of a gzipped idx file of unsigned bytes, in the shape of its header."""
    content = gzip.decompress(path.read_bytes())
    dimensions = content[3]
    shape = tuple(int(size) for size in np.frombuffer(content, ">u4", dimensions, offset=4))
    return np.frombuffer(content, np.uint8, offset=4 + 4 * dimensions).reshape(shape)


def write_idx(array: np.ndarray) -> bytes:
    """Content of the gzipped idx file of a uint8 array, with equal bytes on every machine.

    Its blocks are stored, because compressed bytes differ between zlib versions (RFC 1951, 3.2.4; RFC 1952).
    """
    content = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes()
    blocks = [content[start : start + 65535] for start in range(0, len(content), 65535)]
    body = b"".join(
        struct.pack("<BHH", number == len(blocks) - 1, len(block), len(block) ^ 0xFFFF) + block
        for number, block in enumerate(blocks)
    )
    head = b"\x1f\x8b\x08" + bytes(5) + b"\0\xff"
    return head + body + struct.pack("<II", zlib.crc32(content), len(content))


def _read_cifar(path: Path, label_bytes: int) -> Examples:
    """Images (N, 3, 32, 32) of a binary CIFAR file, each with its last (finest) label."""
    rows = np.frombuffer(path.read_bytes(), np.uint8).reshape(-1, label_bytes + int(np.prod(_IMAGE)))
    return Examples(rows[:, label_bytes:].reshape(-1, *_IMAGE), rows[:, label_bytes - 1].astype(np.int64))


def _read_csv(path: Path) -> Examples:
    """Texts of AG News, and labels from 0. A text is title, space and description, as in torchtext."""
    rows = list(csv.reader(path.read_bytes().decode().splitlines(keepends=True), strict=True))
    texts = [f"{title} {description}" for _, title, description in rows]
    return Examples(np.array(texts, object), np.array([int(label) - 1 for label, *_ in rows], np.int64))
