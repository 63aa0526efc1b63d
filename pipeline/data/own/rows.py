"""Search for rows of private tables in other files, by digests of normalised rows.

A private row counts if it has at least `LENGTH` characters and occurs once in its table. So headers,
constants and common rows raise no alarm. The order of columns and the notation of numbers don't matter, and
the private row may be the first or last part of a longer row. At most `ROWS` rows of each file are read.
"""

import csv
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from functools import partial
from hashlib import blake2b
from itertools import islice
from pathlib import Path

import numpy as np

from dprepro.errors import UserError
from dprepro.pipeline.data.own import tables

LENGTH = 12  # smallest number of characters of a normalised row
FEWEST = 3  # smallest number of different private rows that raises an alarm
ROWS = 500_000
LINE = 100_000  # largest number of bytes of a line; longer lines are skipped
NUMERIC = frozenset("+-.n")  # characters except digits with which a number may begin, such as that of nan
SEPARATORS = (b",", b";", b"\t", b"|")


def files_with_rows(private: Iterable[Path], others: Iterable[Path]) -> list[Path]:
    """Files among ``others`` that contain rows of the ``private`` tables, which have the same columns.

    Args:
        private: CSV and Parquet files.
        others: files of any kind; only text and Parquet files can have rows.
    """
    width, secret = 0, np.zeros(0, np.uint64)
    for path in private:
        rows = _rows(path)
        width = len(next(rows, [])) or width
        found, counts = np.unique(_digests(rows, width), return_counts=True)
        secret = np.union1d(secret, found[counts == 1])
    if not len(secret):
        return []
    fewest, hits = min(FEWEST, len(secret)), []
    for path in others:
        candidates = _digests(_rows(path, width), width)
        if np.isin(np.unique(candidates), secret).sum() >= fewest:
            hits.append(path)
    return hits


def has_columns(path: Path, names: Collection[str]) -> bool:
    """Return whether a line of the file names all columns ``names``, and another line follows."""
    wanted = {name.strip().casefold() for name in names}
    rows = _rows(path, len(wanted))
    return any(wanted <= {field.strip().casefold() for field in row} for row in rows) and any(rows)


def _digests(rows: Iterable[list[str]], width: int) -> np.ndarray:
    """uint64 digests of each row's first and last ``width`` fields with at least `LENGTH` characters."""

    def digests() -> Iterator[bytes]:
        for row in rows:
            for fields in (row,) if len(row) == width else (row[:width], row[-width:]):
                text = "\x1f".join(sorted(map(_normal, fields)))
                if len(text) >= LENGTH:
                    yield blake2b(text.encode(errors="replace"), digest_size=8).digest()

    return np.frombuffer(b"".join(digests()), np.uint64)


def _normal(field: str) -> str:
    """Field in lower case; a number in one notation."""
    text = field.strip().casefold()
    if not text[:1].isdigit() and text[:1] not in NUMERIC:
        return text
    try:
        return f"{float(text):.12g}".replace("nan", "")
    except ValueError:
        return text


def _rows(path: Path, width: int = 1) -> Iterator[list[str]]:
    """Rows of a text file with at least ``width`` fields; of a Parquet file, column names and all rows."""
    if path.suffix.lower() == ".parquet":
        try:
            frame = tables.frame(path)
        except UserError:
            return
        yield [*map(str, frame.columns)]
        yield from map(list, islice(tables.as_texts(frame), ROWS))
        return
    with path.open("rb") as file:
        for line in islice(iter(partial(file.readline, LINE + 1), b""), ROWS):
            if len(line) > LINE:
                continue
            # texts may have more commas than the line has separators; a private table has commas
            for separator in SEPARATORS if width > 1 else SEPARATORS[:1]:
                if line.count(separator) + 1 < width:
                    continue
                text = line.decode(errors="replace").replace("\0", "").replace("\r", "")
                if '"' not in text:
                    yield text.split(separator.decode())
                    continue
                with suppress(csv.Error):
                    yield from csv.reader([text], delimiter=separator.decode())
