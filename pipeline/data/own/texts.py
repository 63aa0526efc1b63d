"""CSV file with a header line; each further line has a text and its class."""

import csv
import warnings
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dprepro.errors import UserError, listed, reading, shown
from dprepro.pipeline.data.formats import Examples
from dprepro.pipeline.limits import OWN_COLUMNS

if TYPE_CHECKING:
    from pandas import DataFrame


def read(path: Path, text: str, label: str, classes: Sequence[str]) -> Examples:
    """Texts, objects of type str (N,), and their labels.

    Raises:
        UserError: the file is no CSV, lacks a column, or a row has no class or an unknown one.
    """
    texts, names = values(path, csv_frame(path), text, label)
    numbers = {name: number for number, name in enumerate(classes)}
    for row, name in enumerate(names, 1):
        if name not in numbers:
            raise UserError(f"{path}: row {row}: {label} is {shown(name)}; allowed: {listed(classes, 10)}")
    return Examples(np.array(texts, object), np.array([numbers[name] for name in names], np.int64))


def _check_columns(path: Path) -> None:
    """Make sure that a file has no more columns than pandas reads in a second.

    Raises:
        UserError: the file has more columns.
        UnicodeDecodeError: the file is not UTF-8.
    """
    longest = OWN_COLUMNS * 1000  # bytes of names
    with reading(path), path.open("rb") as file:
        line = file.readline(longest + 1)
    count = line.count(b",") + 1
    if count > OWN_COLUMNS or len(line) > longest:
        raise UserError(f"{path}: more than {OWN_COLUMNS:,} columns, or their names have {longest:,} bytes")


def refuse_twice(path: Path, names: Iterable[str]) -> None:
    """Refuse two columns of one name: some readers would silently take the first.

    Raises:
        UserError: a name is there twice.
    """
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise UserError(f"{path}: two columns are named {shown(name)}; allowed: another name for each")
        seen.add(name)


def csv_frame(path: Path, rows: int | None = None) -> "DataFrame":
    """All columns of a CSV file as text, by the names in its first line; a missing value is empty.

    Args:
        path: the file.
        rows: largest number of lines to read; None: all.

    Raises:
        UserError: the file is no CSV, or not UTF-8, or two columns have one name.
    """
    import pandas  # imported here, because images don't need it

    try:
        _check_columns(path)
        with reading(path), warnings.catch_warnings():
            # pandas warns about rows that are longer than the first
            warnings.simplefilter("error", pandas.errors.ParserWarning)
            read = partial(
                pandas.read_csv,
                path,
                dtype=str,
                keep_default_na=False,
                index_col=False,
                encoding="utf-8",
                quoting=csv.QUOTE_MINIMAL,
            )
            refuse_twice(path, filter(None, read(header=None, nrows=1).iloc[0]))  # pandas renames them
            return read(nrows=rows)
    except UnicodeDecodeError as problem:
        raise UserError(
            f"{path}: not UTF-8 at byte {problem.start}; allowed: text saved as UTF-8"
        ) from problem
    except (ValueError, pandas.errors.ParserWarning, OverflowError, MemoryError) as problem:
        raise UserError(f"{path}: not a CSV file: {shown(str(problem))}") from problem


def values(path: Path, rows: "DataFrame", *names: str) -> list[list[str]]:
    """Values of the columns ``names`` of ``rows``, a frame that was read from ``path``.

    Raises:
        UserError: a column is missing, or a row has an empty value.
    """
    for name in names:
        if name not in rows.columns:
            raise UserError(
                f"{path}: no column {name!r} in its first line; there are: {listed(rows.columns)}"
            )
    short = (rows[[*names]] == "").any(axis=1)
    if short.any():
        raise UserError(f"{path}: row {int(short.to_numpy().argmax()) + 1}: no {' or no '.join(names)}")
    return [rows[name].tolist() for name in names]
