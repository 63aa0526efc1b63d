"""CSV file with a header line; each further line has a text and its class."""

import csv
import re
import warnings
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from unicodedata import normalize

import numpy as np

from dprepro.errors import UserError, listed, reading, shown
from dprepro.pipeline.data.formats import Examples
from dprepro.pipeline.files import OWN_BYTES
from dprepro.pipeline.params.own import Unit

if TYPE_CHECKING:
    from pandas import DataFrame, Series


def read(path: Path, text: str, label: str, classes: Sequence[str], unit: Unit | None = None) -> Examples:
    """Texts, objects of type str (N,), their labels, and their people if there is a ``unit``.

    Raises:
        UserError: the file is no CSV, lacks a column, or a row has no class, no person or an unknown class.
    """
    rows, people = kept(path, csv_frame(path), unit)
    texts, _ = values(path, rows, text, label)
    return Examples(np.array(texts, object), numbered(path, rows[label], classes), people)


def numbered(path: Path, names: "Series", classes: Sequence[str]) -> np.ndarray:
    """Number in ``classes``, int64 (N,), of the class of each row; ``names`` is the column of classes.

    Raises:
        UserError: a row has another class.
    """
    numbers = names.map({name: number for number, name in enumerate(classes)})
    if (strange := numbers.isna()).any():
        row = int(numbers.index[strange.to_numpy().argmax()])
        raise UserError(f"{at(path, row)}: {names.name} is {unknown(names[row], classes)}")
    return numbers.to_numpy(np.int64)


def kept(path: Path, rows: "DataFrame", unit: Unit | None) -> tuple["DataFrame", np.ndarray | None]:
    """Rows of a file that a unit of privacy keeps, and the person (N,) of each of these rows.

    They are the first rows of each person, so they don't depend on other people. Names of a person that
    differ in case, in outer blanks or in the form of Unicode's characters count as one.

    Args:
        path: the file.
        rows: the file's rows.
        unit: the unit; None keeps all rows, which then have no people.

    Raises:
        UserError: the column of people is missing, or a row has no person.
    """
    if unit is None:
        return rows, None
    column = column_of(path, rows, unit.column)
    people = (
        column.astype(object)
        .where(column.notna(), "")
        .map(lambda name: normalize("NFKC", str(name)).strip().casefold())
    )
    if people.eq("").any():
        row = int(people.eq("").to_numpy().argmax())
        raise UserError(f"{at(path, row)}: {unit.column} is missing; allowed: the name of a person")
    first = people.groupby(people).cumcount() < unit.at_most
    return rows[first], people[first].to_numpy(object)


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
            head = [*read(header=None, nrows=1).iloc[0]]
            if head[0].startswith("#") or re.fullmatch("sep=.?", head[0]):
                raise UserError(f"{path}: line 1: {shown(head[0])}; allowed: the names of the columns")
            refuse_twice(path, filter(None, head))  # pandas renames them
            try:
                lines = read(nrows=rows)
            except pandas.errors.ParserWarning:  # longer lines than the first
                _refuse_longer(path, len(head))
                warnings.simplefilter("ignore", pandas.errors.ParserWarning)
                lines = read(nrows=rows)
            unnamed = [column for column, name in zip(lines.columns, head, strict=True) if not name]
            if any(lines[column].ne("").any() for column in unnamed):
                raise UserError(f"{path}: line 1: column {head.index('') + 1} has no name")
            return lines.drop(columns=unnamed)  # commas at the ends of lines
    except UnicodeDecodeError as problem:
        raise UserError(
            f"{path}: not UTF-8 at byte {problem.start}; allowed: text saved as UTF-8"
        ) from problem
    except (ValueError, pandas.errors.ParserWarning, OverflowError, MemoryError) as problem:
        raise UserError(f"{path}: not a CSV file: {shown(str(problem))}") from problem


def _refuse_longer(path: Path, columns: int) -> None:
    """Refuse a line with more values than the first line has names; commas at its end are none."""
    csv.field_size_limit(OWN_BYTES)
    with reading(path), path.open(encoding="utf-8", newline="") as file:
        for row in (reader := csv.reader(file)):
            if any(row[columns:]):
                raise UserError(
                    f"{path}: line {reader.line_num}: {len(row)} values; the first line has {columns} names"
                )


def at(path: Path, row: int) -> str:
    """A file and the row of its example number ``row``, from 0, for messages.

    Rows of a CSV file are counted as in a spreadsheet: the names are the first row, blank lines are none.
    """
    return f"{path}: row {row + (1 if path.suffix.lower() == '.parquet' else 2)}"


def column_of(path: Path, rows: "DataFrame", name: str) -> "Series":
    """Column ``name`` of rows that were read from ``path``.

    Raises:
        UserError: there is no such column.
    """
    if name not in rows.columns:
        raise UserError(no_column(path, name, rows.columns))
    return rows[name]


def no_column(path: Path, name: str, there: Iterable[str]) -> str:
    """Message about a column that a file lacks, with the names that it has."""
    alike = [each for each in there if normalize("NFC", each) == normalize("NFC", name)]
    if alike:
        return f"{path}: no column {name!a}; {alike[0]!a} looks the same"
    return f"{path}: no column {name!r}; there are: {listed(there) or 'none'}"


def unknown(text: str, declared: Sequence[str]) -> str:
    """Text of a value that is not ``declared``, and what is allowed, for messages."""
    allowed = listed(declared, 10)
    alike = [each for each in declared if normalize("NFC", each) == normalize("NFC", text)]
    if alike:
        return f"{text!a}; allowed: {allowed}, of which {alike[0]!a} looks the same"
    return f"{shown(text)}; allowed: {allowed}"


def values(path: Path, rows: "DataFrame", *names: str) -> list[list[str]]:
    """Values of the columns ``names`` of ``rows``, a frame that was read from ``path``.

    Raises:
        UserError: a column is missing, or a row has an empty value.
    """
    columns = [column_of(path, rows, name) for name in names]
    short = (rows[[*names]] == "").any(axis=1)
    if short.any():
        raise UserError(f"{at(path, int(short.idxmax()))}: no {' or no '.join(names)}")
    return [column.tolist() for column in columns]
