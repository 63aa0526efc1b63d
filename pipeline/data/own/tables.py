"""Tables (CSV or Parquet) with one example per line. Declared columns become features."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dprepro.errors import UserError, listed, notice, reading, shown
from dprepro.pipeline.data.formats import Examples
from dprepro.pipeline.data.own.texts import (
    at,
    column_of,
    csv_frame,
    kept,
    numbered,
    refuse_twice,
    unknown,
)
from dprepro.pipeline.files import OWN_BYTES, OWN_COLUMNS
from dprepro.pipeline.params.own import Categorical, Column, Numeric, Unit

if TYPE_CHECKING:
    from pandas import DataFrame, Series
    from pyarrow import ChunkedArray, DataType
    from pyarrow.parquet import ParquetFile

FORMATS = {".csv": "csv", ".parquet": "parquet"}
FILLED = "a value, or `fill` or `indicator` in the column's declaration"
FEW = 50  # largest number of values of a public column that counts as categorical


def read(
    path: Path,
    label: str,
    classes: Sequence[str],
    columns: Mapping[str, Column],
    target: tuple[float, float] | None = None,
    unit: Unit | None = None,
) -> Examples:
    """Features, float32 (N, D), and labels: classes, or numbers scaled from ``target`` to [0, 1].

    With a ``unit`` the examples are those that it keeps, with their people.

    Raises:
        UserError: the file is no table, lacks a column, or has a value that the declaration doesn't allow.
    """
    lines, people = kept(path, frame(path, [*columns, label, *([unit.column] if unit else [])]), unit)
    features = encode(path, lines, columns)
    if target is not None:
        scaled = _numbers(path, label, column_of(path, lines, label), Numeric(range=target), is_target=True)
        return Examples(features, (scaled[:, 0] + 1) / 2, people)
    names = _in_words(column_of(path, lines, label), classes)
    return Examples(features, numbered(path, names, classes), people)


def frame(path: Path, columns: Sequence[str] | None = None) -> "DataFrame":
    """Columns of a table; columns of a CSV file are text.

    Args:
        path: the table.
        columns: declared columns; None: all columns, and those of other types than declared ones as text.

    Raises:
        UserError: the file is no table, is too large, or a declared column has another type.
    """
    if path.suffix.lower() != ".parquet":
        return csv_frame(path)
    import pyarrow

    with _parquet(path) as file:
        about = file.metadata
        if about.num_columns > OWN_COLUMNS:
            raise UserError(f"{path}: more than {OWN_COLUMNS:,} columns")
        size = sum(about.row_group(group).total_byte_size for group in range(about.num_row_groups))
        if size > OWN_BYTES:
            raise UserError(f"{path}: would take {size:,} bytes; allowed: up to {OWN_BYTES:,}")
        wanted = [each for each in _names_of(file) if columns is None or each in columns]
        table = file.read(columns=wanted)
        plain = {each: _plain(path, each, table[each], columns is not None) for each in wanted}
        # without pandas' own description, which may name types that pandas can't read
        return pyarrow.table(plain).to_pandas(ignore_metadata=True, types_mapper=_nullable)


def _plain(path: Path, name: str, column: "ChunkedArray", declared: bool) -> "ChunkedArray":
    """Column of numbers, booleans or texts; others are texts, and refused if they are ``declared``."""
    import pyarrow
    from pyarrow import types

    if types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    kind = column.type
    if types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind) or types.is_null(kind):
        return column
    if not (types.is_string(kind) or types.is_large_string(kind) or types.is_decimal(kind)):
        if declared:
            raise UserError(f"{path}: {name} is of type {kind}; allowed: numbers, texts and booleans")
        if not types.is_temporal(kind):
            values = [None if each is None else str(each) for each in column.to_pylist()]
            return pyarrow.chunked_array([pyarrow.array(values, pyarrow.string())])
    return column.cast(pyarrow.string())


def _nullable(kind: "DataType") -> Any:
    """Type of pandas in which integers and booleans stay such beside missing values; None: the usual one."""
    import pandas
    from pyarrow import types

    if types.is_boolean(kind):
        return pandas.BooleanDtype()
    if types.is_integer(kind):
        return pandas.api.types.pandas_dtype(str(kind).replace("int", "Int").replace("uInt", "UInt"))
    return None


def _names_of(file: "ParquetFile") -> list[str]:
    """Names of a Parquet file's columns; an index of pandas that has a name is a column like any other."""
    return [name for name in file.schema_arrow.names if not name.startswith("__index_level_")]


def encode(path: Path, lines: "DataFrame", columns: Mapping[str, Column]) -> np.ndarray:
    """Features, float32 (N, D) in [-1, 1]: scaled numbers, and a 0 or a 1 for each category.

    Raises:
        UserError: a column is missing, or a value is not as declared.
    """
    there = {name: column_of(path, lines, name) for name in columns}
    _refuse_missing(path, there, columns)
    features = []
    for name, column in columns.items():
        values = there[name]
        if isinstance(column, Numeric):
            features.append(_numbers(path, name, values, column))
        else:
            features.append(_categories(path, name, values, column))
    return np.concatenate(features, axis=1)


def labels(lines: "DataFrame", label: str | None) -> list[str]:
    """Name of each line's class, from the column ``label``; empty if the table has no such column."""
    return [] if label is None or label not in lines.columns else _strings(lines[label]).tolist()


def as_texts(lines: "DataFrame") -> Iterator[tuple[str, ...]]:
    """Values of each line as text; a missing value is empty."""
    return zip(*(_strings(column) for _, column in lines.items()), strict=True)


def names(path: Path) -> list[str]:
    """Names of a table's columns, without reading its lines.

    Raises:
        UserError: the file is no table.
    """
    if path.suffix.lower() != ".parquet":
        return [*csv_frame(path, rows=0).columns]
    with _parquet(path) as file:
        return _names_of(file)


@contextmanager
def _parquet(path: Path) -> Iterator["ParquetFile"]:
    """Open a Parquet file. Errors of pyarrow and columns with equal names become a UserError of one line."""
    import pyarrow
    from pyarrow import parquet

    try:
        with reading(path):
            file = parquet.ParquetFile(path)
            refuse_twice(path, file.schema_arrow.names)
            yield file
    except (pyarrow.ArrowException, ValueError) as problem:
        raise UserError(f"{path}: not a Parquet file: {shown(str(problem))}") from problem


def declared_by(path: Path, label: str) -> dict[str, Any]:
    """Declaration of a public table's classes and columns: each column's range, or up to 50 text values.

    A column with more text values, or with one number only, is left out. The declaration allows examples of
    the private table to lack values, and to have values that the public table lacks.

    Raises:
        UserError: the file is no table, or lacks the label.
    """
    lines = frame(path)
    columns: dict[str, Any] = {}
    for name in lines.columns:
        if name == label:
            continue
        texts = _strings(lines[name])
        texts = texts[texts != ""]
        numbers = as_numbers(texts[~_is_nan(texts)])
        if len(numbers) and not np.isnan(numbers).any():
            finite = numbers[np.isfinite(numbers)]  # the ends of a range are finite
            if len(finite) and (low := float(finite.min())) < (high := float(finite.max())):
                columns[name] = {"range": [low, high], "indicator": True}
        elif 0 < texts.nunique() <= FEW:
            columns[name] = {"values": sorted(texts.unique()), "indicator": True, "other": True}
    classes = _strings(column_of(path, lines, label))
    return {"classes": sorted(classes[classes != ""].unique()), "columns": columns}


def _strings(column: "Series") -> "Series":
    """Values as text; a missing value is empty."""
    return column.astype(object).where(column.notna(), "").map(str)


def _in_words(values: "Series", declared: Sequence[str]) -> "Series":
    """Values as text; those of a boolean column in the declared spelling, such as true or True."""
    import pandas

    texts = _strings(values)
    if not pandas.api.types.is_bool_dtype(values):
        return texts
    spelled = {value.lower(): value for value in declared}
    return texts.map(lambda text: spelled.get(text.lower(), text))


def _is_nan(texts: "Series") -> "Series":
    """Mask of a numeric column's missing values that are written as NaN."""
    return texts.str.lower().eq("nan")


def as_numbers(texts: "Series | Sequence[str]") -> np.ndarray:
    """float64 (N,) numbers; NaN for a text that is no number."""
    import pandas

    return np.asarray(pandas.to_numeric(pandas.Series(texts), errors="coerce"), np.float64)


def _first(where: "Series") -> int | None:
    """Number of the table's first line with True in ``where``, from 0; None if there is none."""
    places = np.flatnonzero(where.to_numpy())
    return int(where.index[places[0]]) if len(places) else None


def _refuse_missing(path: Path, there: Mapping[str, "Series"], columns: Mapping[str, Column]) -> None:
    """Refuse missing values in columns whose declaration doesn't say what stands for them."""
    first = {
        name: line
        for name, column in columns.items()
        if column.fill is None and not column.indicator
        if (line := _first(_missing(there[name], column))) is not None
    }
    if first:
        name, line = min(first.items(), key=lambda found: found[1])
        others = [other for other in first if other != name]
        also = f"; so it is in other lines of {listed(others)}" if others else ""
        raise UserError(f"{at(path, line)}: {name} is missing{also}; allowed: {FILLED}")


def _missing(values: "Series", column: Column) -> "Series":
    texts = _strings(values)
    if isinstance(column, Numeric):
        return texts.eq("") | _is_nan(texts)
    return texts.eq("") & ("" not in column.values)


def _numbers(path: Path, name: str, values: "Series", column: Numeric, is_target: bool = False) -> np.ndarray:
    """Scaled numbers of a feature, or of the target, which has no declaration that could allow more."""
    others = "" if is_target else ", or `values` in place of `range` in the column's declaration"
    texts, missing = _strings(values), _missing(values, column)
    numbers = as_numbers(texts)
    if (line := _first(~missing & np.isnan(numbers))) is not None:
        empty = "" if is_target else ", and an empty cell for a missing one"
        raise UserError(f"{at(path, line)}: {name} is {shown(texts[line])}; allowed: numbers{empty}{others}")
    if is_target and (line := _first(missing)) is not None:
        raise UserError(f"{at(path, line)}: {name} is missing; allowed: a number")
    low, high = column.range
    numbers = np.where(missing, low if column.fill is None else column.fill, numbers)
    scaled = 2 * (np.clip(numbers, low, high) - low) / (high - low) - 1
    parts = [scaled, missing.to_numpy(np.float64)] if column.indicator else [scaled]
    return np.stack(parts, axis=1).astype(np.float32)


def _categories(path: Path, name: str, values: "Series", column: Categorical) -> np.ndarray:
    texts = _in_words(values, column.values)
    missing = _missing(values, column)
    if column.fill is not None:
        texts = texts.mask(missing, column.fill)
        missing = missing & False
    known = texts.isin(column.values)
    other = ~known & ~missing
    if column.other and other.any() and not known.any():
        notice(
            f"{path}: {name}: no line has one of its declared values {listed(column.values, 5)}; "
            f"there is {shown(texts[other].iloc[0])}"
        )
    if not column.other and (line := _first(other)) is not None:
        raise UserError(
            f"{at(path, line)}: {name} is {unknown(texts[line], column.values)}, or `other: true` in the "
            "column's declaration"
        )
    parts = [texts.eq(value) for value in column.values]
    parts += [missing] * column.indicator + [other] * column.other
    return np.stack([part.to_numpy(np.float32) for part in parts], axis=1)
