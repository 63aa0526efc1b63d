"""Rows of private tables within other files, found by digests of normalised rows.

A row counts if it has at least `LENGTH` characters and occurs once in the private table, so that headers,
constants and common rows raise no alarm. Neither the order of the columns nor the way of writing a number
matters, and a longer row may have a private one at its beginning or its end. Work and memory are bounded:
`ROWS` rows of the private table and as many candidates are read.
"""

import csv
from collections.abc import Iterable, Iterator
from contextlib import suppress
from hashlib import blake2b
from itertools import islice
from pathlib import Path

import numpy as np

from pipeline.data.own import tables
from pipeline.errors import UserError

LENGTH = 12  # characters of a normalised row at least
FEWEST = 3  # different rows that raise an alarm
ROWS = 500_000
LINE = 100_000  # bytes of a line; longer ones are no rows
NUMERIC = frozenset("+-.n")  # first letters of numbers that aren't digits, such as of nan
SEPARATORS = (b",", b";", b"\t", b"|")


def files_with_rows(private: Iterable[Path], others: Iterable[Path]) -> list[Path]:
    """Files among ``others`` that have rows of ``private`` tables with the same columns.

    Args:
        private: CSV and Parquet files.
        others: files of any kind; those that aren't text or Parquet have no rows.
    """
    width, secret = 0, np.zeros(0, np.uint64)
    for path in private:
        rows = _rows(path)
        width = len(next(rows, [])) or width
        found, counts = np.unique(_digests(islice(rows, ROWS), width), return_counts=True)
        secret = np.union1d(secret, found[counts == 1])
    if not len(secret):
        return []
    fewest, left, hits = min(FEWEST, len(secret)), ROWS, []
    for path in others:
        candidates = _digests(islice(_rows(path, width), left), width)
        left -= len(candidates)
        if np.isin(np.unique(candidates), secret).sum() >= fewest:
            hits.append(path)
    return hits


def _digests(rows: Iterable[list[str]], width: int) -> np.ndarray:
    """uint64 of each long row's first and last ``width`` fields."""

    def each() -> Iterator[bytes]:
        for row in rows:
            for fields in (row,) if len(row) == width else (row[:width], row[-width:]):
                text = "\x1f".join(sorted(map(_normal, fields)))
                if len(text) >= LENGTH:
                    yield blake2b(text.encode(errors="replace"), digest_size=8).digest()

    return np.frombuffer(b"".join(each()), np.uint64)


def _normal(field: str) -> str:
    """A field without the ways to write it."""
    text = field.strip().casefold()
    if not text[:1].isdigit() and text[:1] not in NUMERIC:
        return text
    try:
        return f"{float(text):.12g}".replace("nan", "")
    except ValueError:
        return text


def _rows(path: Path, width: int = 1) -> Iterator[list[str]]:
    """Rows of at least ``width`` fields, by whatever separates them; a Parquet file's names come first."""
    if path.suffix.lower() == ".parquet":
        try:
            frame = tables.frame(path)
        except UserError:
            return
        yield [*map(str, frame.columns)]
        for line in frame.itertuples(index=False, name=None):
            yield [*map(str, line)]
        return
    with path.open("rb") as file:
        while line := file.readline(LINE + 1):
            if len(line) > LINE:
                continue
            separator = max(SEPARATORS, key=line.count)
            if line.count(separator) + 1 >= width:
                text = line.decode(errors="replace").replace("\0", "").replace("\r", "")
                if '"' not in text:
                    yield text.split(separator.decode())
                    continue
                with suppress(csv.Error):
                    yield from csv.reader([text], delimiter=separator.decode())
