"""Arrays by name from NumPy's `.npz`, without unpickling and with a limit on their size."""

import lzma
import zipfile
import zlib
from pathlib import Path
from tokenize import TokenError

import numpy as np

from dprepro.errors import UserError, listed, shown
from dprepro.pipeline.data.formats import Examples
from dprepro.pipeline.files import OWN_BYTES, OWN_CLASSES

_CORRUPT = (
    *(zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError, TypeError, OverflowError),
    *(RuntimeError, SyntaxError, TokenError, lzma.LZMAError, MemoryError),
)


def read(path: Path, inputs: str, labels: str) -> Examples:
    """Examples from the arrays that ``inputs`` and ``labels`` name.

    Whole numbers are images, uint8 (N, C, H, W); floats are features, float32 (N, D) or (N, C, H, W).

    Raises:
        UserError: the file is no npz or lacks an array, or an array has another form.
    """
    examples = Examples(read_inputs(path, inputs), _labels(path, labels, _array(path, labels)))
    count, numbers = len(examples.inputs), len(examples.labels)
    if count != numbers:
        raise UserError(f"{path}: {inputs!r} has {count} examples, but {labels!r} has {numbers} labels")
    return examples


def _array(path: Path, name: str) -> np.ndarray:
    try:
        with zipfile.ZipFile(path) as archive:
            size = sum(member.file_size for member in archive.infolist())
        if size > OWN_BYTES:
            raise UserError(f"{path}: would take {size:,} bytes; allowed: up to {OWN_BYTES:,}")
        with np.load(path, allow_pickle=False) as arrays:
            array = arrays[name] if name in arrays.files else None
            if not isinstance(array, np.ndarray):
                raise UserError(f"{path}: no array {name!r}; there are: {listed(arrays.files) or 'none'}")
            return array
    except _CORRUPT as problem:
        raise UserError(
            f"{path}: {name!r}: no array in an npz file of numbers: {shown(str(problem))}"
        ) from problem


def read_inputs(path: Path, name: str) -> np.ndarray:
    """Images or features of the array ``name``, as in `read`."""
    array = _array(path, name)
    if 0 in array.shape[1:]:
        raise UserError(f"{path}: {name!r} is of shape {array.shape}; allowed: one value or more an example")
    return (_features if array.dtype.kind == "f" else _images)(path, name, array)


def _images(path: Path, name: str, array: np.ndarray) -> np.ndarray:
    """Images uint8 (N, C, H, W)."""
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
    """Features float32 (N, D) or (N, C, H, W), in a new array."""
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


def read_labels(path: Path, name: str, count: int) -> list[int]:
    """Labels of ``count`` examples in the array called ``name``; empty if the file has no such array.

    Raises:
        UserError: the array has another form or length.
    """
    with np.load(path, allow_pickle=False) as arrays:
        if name not in arrays.files:
            return []
    labels = _labels(path, name, _array(path, name))
    if len(labels) != count:
        raise UserError(f"{path}: {count} examples, but {name!r} has {len(labels)} labels")
    return [int(label) for label in labels]


def _labels(path: Path, name: str, array: np.ndarray) -> np.ndarray:
    """Labels int64 (N,); a second dimension of size one is removed."""
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise UserError(f"{path}: {name!r} is {array.dtype} of shape {array.shape}; allowed: integers (N,)")
    if array.size and not 0 <= array.min() <= array.max() < OWN_CLASSES:
        there = f"{path}: {name!r} has labels from {array.min()} to {array.max()}"
        raise UserError(f"{there}; allowed: 0 to {OWN_CLASSES - 1}")
    return array.astype(np.int64)
