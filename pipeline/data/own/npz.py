"""Arrays by name from NumPy's `.npz`. Nothing is unpickled, and nothing unpacked before its size is known."""

import lzma
import math
import zipfile
import zlib
from pathlib import Path
from tokenize import TokenError
from typing import IO

import numpy as np
from numpy.lib import format as npy

from pipeline.data.formats import Examples
from pipeline.errors import UserError, shown
from pipeline.limits import OWN_BYTES

_CORRUPT = (
    *(zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError, TypeError, OverflowError),
    *(RuntimeError, NotImplementedError, SyntaxError, TokenError, lzma.LZMAError),
)


def read(path: Path, inputs: str, labels: str) -> Examples:
    """Examples and their labels, as the arrays called ``inputs`` and ``labels`` hold them.

    Whole numbers are images, uint8 (N, C, H, W); floats are features, float32 (N, D) or (N, C, H, W).

    Raises:
        UserError: the file is none, lacks an array, or an array is not what it must be.
    """
    examples = Examples(read_inputs(path, inputs), _labels(path, labels, _array(path, labels)))
    count, numbers = len(examples.inputs), len(examples.labels)
    if count != numbers:
        raise UserError(f"{path}: {inputs!r} has {count} examples, but {labels!r} has {numbers} labels")
    return examples


def names(path: Path) -> list[str]:
    """Names of the arrays there.

    Raises:
        UserError: the file is none.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            return [each.removesuffix(".npy") for each in archive.namelist() if each.endswith(".npy")]
    except _CORRUPT as problem:
        raise UserError(f"{path}: not an npz file: {shown(str(problem))}") from problem


def _array(path: Path, name: str) -> np.ndarray:
    there = names(path)
    if name not in there:
        raise UserError(
            f"{path}: no array {name!r}; there are: {', '.join(map(shown, there[:20])) or 'none'}"
        )
    try:
        with zipfile.ZipFile(path) as archive:
            with archive.open(f"{name}.npy") as stream:
                shape, kind = _header(stream)
            size = math.prod(shape) * kind.itemsize
            if kind.hasobject:
                raise UserError(
                    f"{path}: {name!r} holds pickled objects, which are not read; allowed: numbers"
                )
            if size > OWN_BYTES:
                raise UserError(f"{path}: {name!r} would take {size:,} bytes; allowed: up to {OWN_BYTES:,}")
            with archive.open(f"{name}.npy") as stream:
                return np.asarray(npy.read_array(stream, allow_pickle=False))
    except _CORRUPT as problem:
        raise UserError(f"{path}: {name!r}: truncated or corrupt: {shown(str(problem))}") from problem


def _header(stream: IO[bytes]) -> tuple[tuple[int, ...], np.dtype]:
    """Shape and type that an array's first bytes tell."""
    version = npy.read_magic(stream)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"version {version} of the format")
    read_header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, _, kind = read_header(stream)
    return shape, kind


def read_inputs(path: Path, name: str) -> np.ndarray:
    """Images or features of the array called ``name``, as `read` returns them."""
    array = _array(path, name)
    return (_features if array.dtype.kind == "f" else _images)(path, name, array)


def _images(path: Path, name: str, array: np.ndarray) -> np.ndarray:
    """uint8 (N, C, H, W)."""
    where = f"{path}: {name!r}"
    if array.dtype.kind not in "iu" or (array.size and not 0 <= array.min() <= array.max() <= 255):
        raise UserError(f"{where} is of {array.dtype}; allowed: whole numbers from 0 to 255, or floats")
    array = array.astype(np.uint8, copy=False)
    if array.ndim == 3:
        return array[:, None]
    first, last = (array.ndim == 4 and array.shape[axis] in (1, 3) for axis in (1, -1))
    if first == last:
        raise UserError(
            f"{where} is of shape {array.shape}; allowed: (N, H, W), (N, H, W, C) or (N, C, H, W), C 1 or 3"
        )
    return array if first else np.ascontiguousarray(array.transpose(0, 3, 1, 2))


def _features(path: Path, name: str, array: np.ndarray) -> np.ndarray:
    """float32, in an array of its own."""
    if array.ndim not in (2, 4):
        raise UserError(
            f"{path}: {name!r} is {array.dtype} of shape {array.shape}; allowed: floats (N, D) or "
            "(N, C, H, W), which are features, or whole numbers from 0 to 255, which are images"
        )
    with np.errstate(over="ignore"):
        features = array.astype(np.float32)
    if not np.isfinite(features).all():
        raise UserError(f"{path}: {name!r} has values that are no finite float32; allowed: finite numbers")
    return features


def _labels(path: Path, name: str, array: np.ndarray) -> np.ndarray:
    """int64 (N,); a second dimension of one is taken away."""
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise UserError(f"{path}: {name!r} is {array.dtype} of shape {array.shape}; allowed: integers (N,)")
    return array.astype(np.int64)
