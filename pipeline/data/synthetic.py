"""Source `synthetic`: raw files made by this project, in the official formats.

With these files the whole pipeline runs anywhere. Their classes can be learned, but not trivially. An image
is its class's coarse pattern, shifted by up to `SHIFT` pixels, faded, mixed with another class's pattern and
covered with noise. A news text draws most words from a vocabulary of all classes, and some from its own
class's vocabulary. Patterns of the public sets, KMNIST and CIFAR-100, have a finer grain.

Files have equal bytes everywhere. They come from integer arithmetic on raw PCG64 output, which NumPy
guarantees.
"""

import hashlib
from pathlib import Path

import numpy as np

from dprepro.pipeline.data.catalog import OFFICIAL, Entry
from dprepro.pipeline.data.formats import write_idx
from dprepro.pipeline.files import writing

GRAIN = 4  # side of a cell of a class's pattern, in pixels
FINE_GRAIN = {"kmnist": 2, "cifar100": 2}  # of the public sets
SHIFT = 2  # largest shift in each direction, in pixels
SEEDS = {"mnist": 11, "kmnist": 12, "cifar10": 13, "cifar100": 14, "ag-news": 15}  # others: from their keys
COMMON_WORDS = 600
CLASS_WORDS = 150
OWN_SHARE = 30  # percent of words drawn from the text's own class
OTHER_SHARE = 15  # percent drawn from a random class


def write(entry: Entry, train: int, test: int, folder: Path) -> None:
    """Write files with ``entry``'s official names and format, with the given numbers of examples.

    Raises:
        UserError: ``folder`` can't be written.
    """
    official = entry.editions[OFFICIAL]
    for number, (files, count) in enumerate(((official.train, train), (official.test, test))):
        # patterns come from the seed alone; each part draws its examples from a separate stream
        draws = np.random.PCG64([_seed(entry), 1 + number])
        labels = _labels(count, len(entry.classes), draws)
        if entry.shape is None:
            contents = [_csv(labels, draws, _seed(entry), len(entry.classes))]
        else:
            images = _images(_patterns(entry, entry.shape), labels, draws)
            if entry.format == "idx":
                contents = [write_idx(images[:, 0]), write_idx(labels.astype(np.uint8))]
            else:
                contents = _cifar(images, labels, len(files), coarse=entry.format == "cifar100")
        for file, content in zip(files, contents, strict=True):
            with writing(folder / file.name):
                (folder / file.name).write_bytes(content)


def _seed(entry: Entry) -> int:
    """Seed of a data set's patterns."""
    return SEEDS.get(entry.key) or int.from_bytes(hashlib.sha256(entry.key.encode()).digest()[:8], "big")


def _integers(draws: np.random.PCG64, below: int, *shape: int) -> np.ndarray:
    """Random integers from 0 to ``below`` - 1. The tiny bias of 32-bit multiplication doesn't matter here."""
    words = draws.random_raw(int(np.prod(shape))).reshape(shape) >> np.uint64(32)
    return ((words * np.uint64(below)) >> np.uint64(32)).astype(np.int64)


def _labels(count: int, classes: int, draws: np.random.PCG64) -> np.ndarray:
    """Balanced labels in a random order."""
    return (np.arange(count) % classes)[np.argsort(draws.random_raw(count), kind="stable")]


def _patterns(entry: Entry, shape: tuple[int, ...]) -> np.ndarray:
    """Smooth patterns of the classes, (classes, C, H, W) from 0 to 255."""
    grain, (channels, height, width) = FINE_GRAIN.get(entry.key, GRAIN), shape
    draws = np.random.PCG64([_seed(entry), 0])
    cells = 255 * _integers(draws, 2, len(entry.classes), channels, -(-height // grain), -(-width // grain))
    fine = cells.repeat(grain, axis=2).repeat(grain, axis=3)[:, :, :height, :width]
    for axis in (2, 3):
        fine = (np.roll(fine, 1, axis) + 2 * fine + np.roll(fine, -1, axis)) // 4
    return fine


def _images(patterns: np.ndarray, labels: np.ndarray, draws: np.random.PCG64) -> np.ndarray:
    """One image for each label: uint8 (N, C, H, W)."""
    count, shape = len(labels), patterns.shape[1:]
    other = _integers(draws, len(patterns), count)
    strength = 80 + _integers(draws, 100, count)  # of the class's pattern, in 256ths
    disturbance = _integers(draws, 80, count)  # of the other class's pattern, in 256ths
    shifts = _integers(draws, 2 * SHIFT + 1, count, 2) - SHIFT
    images = np.empty((count, *shape), np.uint8)
    for index in range(count):  # one at a time, because int64 noise of all images needs much memory
        mixed = (strength[index] * patterns[labels[index]] + disturbance[index] * patterns[other[index]]) >> 8
        noise = _integers(draws, 96, *shape)
        images[index] = np.minimum(np.roll(mixed, tuple(shifts[index]), (1, 2)) + noise, 255)
    return images


def _cifar(images: np.ndarray, labels: np.ndarray, files: int, *, coarse: bool) -> list[bytes]:
    """Contents of ``files`` binary CIFAR files; a coarse label is the fine one divided by 5, rounded down."""
    fine = labels.astype(np.uint8)[:, None]
    rows = np.hstack([*([fine // 5] if coarse else []), fine, images.reshape(len(images), -1)])
    return [some.tobytes() for some in np.array_split(rows, files)]


def _words(count: int, draws: np.random.PCG64) -> list[str]:
    """Pronounceable words, possibly with repetitions."""
    syllables = [a + b for a in "bdfgklmnprstvz" for b in "aeiou"]
    lengths = 2 + _integers(draws, 2, count)
    return ["".join(syllables[i] for i in _integers(draws, len(syllables), length)) for length in lengths]


def _csv(labels: np.ndarray, draws: np.random.PCG64, seed: int, classes: int) -> bytes:
    """Rows of AG News: class from 1, title, description, every field quoted."""
    words = np.random.PCG64([seed, 0])
    common = _words(COMMON_WORDS, words)
    class_words = [_words(CLASS_WORDS, words) for _ in range(classes)]
    lines = []
    for label in labels:
        length = 12 + int(_integers(draws, 28, 1)[0])
        lot = _integers(draws, 100, length)
        # the smaller of two draws, so that low ranks are more frequent, as in real text
        rank = _integers(draws, 1 << 16, 2, length).min(axis=0)
        stray = _integers(draws, classes, length)
        text = []
        for position in range(length):
            if lot[position] < OWN_SHARE + OTHER_SHARE:
                source = class_words[label if lot[position] < OWN_SHARE else stray[position]]
            else:
                source = common
            text.append(source[int(rank[position]) * len(source) >> 16])
        lines.append(f'"{label + 1}","{" ".join(text[:5]).capitalize()}","{" ".join(text[5:])}."\n')
    return "".join(lines).encode()
