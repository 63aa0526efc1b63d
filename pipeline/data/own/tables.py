"""Tables (CSV or Parquet) with one example per line. Declared columns become features."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dprepro.errors import UserError, listed, reading, shown
from dprepro.pipeline.data.formats import Examples
from dprepro.pipeline.data.own.texts import csv_frame, refuse_twice
from dprepro.pipeline.limits import OWN_BYTES, OWN_COLUMNS
from dprepro.pipeline.params.own import Categorical, Column, Numeric

if TYPE_CHECKING:
    from pandas import DataFrame, Series
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
) -> Examples:
    """Features, float32 (N, D), and labels: classes, or numbers scaled from ``target`` to [0, 1].

    Raises:
        UserError: the file is no table, lacks a column, or has a value that the declaration doesn't allow.
    """
    lines = frame(path)
    features = encode(path, lines, columns)
    if target is not None:
        scaled = _numbers(path, label, _column(path, lines, label), Numeric(range=target), is_target=True)
        return Examples(features, (scaled[:, 0] + 1) / 2)
    numbers = {name: number for number, name in enumerate(classes)}
    names = _strings(_column(path, lines, label))
    found = names.map(numbers)
    if (line := _first(found.isna())) is not None:
        found_name, known = shown(names.iloc[line]), listed(classes, 10)
        raise UserError(f"{path}: line {line + 1}: {label} is {found_name}; allowed: {known}")
    return Examples(features, found.to_numpy(np.int64))


def frame(path: Path) -> "DataFrame":
    """All columns of a table; columns of a CSV file are text.

    Raises:
        UserError: the file is no table, or too large.
    """
    if path.suffix.lower() != ".parquet":
        return csv_frame(path)
    import pandas

    with _parquet(path) as file:
        about = file.metadata
        if about.num_columns > OWN_COLUMNS:
            raise UserError(f"{path}: more than {OWN_COLUMNS:,} columns")
        size = sum(about.row_group(group).total_byte_size for group in range(about.num_row_groups))
        if size > OWN_BYTES:
            raise UserError(f"{path}: would take {size:,} bytes; allowed: up to {OWN_BYTES:,}")
        # integers and booleans stay such beside missing values
        lines = pandas.read_parquet(path, dtype_backend="numpy_nullable")
        # the index of pandas, if it has a name, is a column like any other
        return lines if lines.index.names == [None] else lines.reset_index()


def encode(path: Path, lines: "DataFrame", columns: Mapping[str, Column]) -> np.ndarray:
    """Features, float32 (N, D) in [-1, 1]: scaled numbers, and a 0 or a 1 for each category.

    Raises:
        UserError: a column is missing, or a value is not as declared.
    """
    features = []
    for name, column in columns.items():
        values = _column(path, lines, name)
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
        return [name for name in file.schema_arrow.names if not name.startswith("__index_level_")]


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
    classes = _strings(_column(path, lines, label))
    return {"classes": sorted(classes[classes != ""].unique()), "columns": columns}


def _column(path: Path, lines: "DataFrame", name: str) -> "Series":
    if name not in lines.columns:
        raise UserError(f"{path}: no column {name!r}; there are: {listed(lines.columns)}")
    return lines[name]


def _strings(column: "Series") -> "Series":
    """Values as text; a missing value is empty."""
    return column.astype(object).where(column.notna(), "").map(str)


def _is_nan(texts: "Series") -> "Series":
    """Mask of a numeric column's missing values that are written as NaN."""
    return texts.str.lower().eq("nan")


def as_numbers(texts: "Series | Sequence[str]") -> np.ndarray:
    """float64 (N,) numbers; NaN for a text that is no number."""
    import pandas

    return np.asarray(pandas.to_numeric(pandas.Series(texts), errors="coerce"), np.float64)


def _first(where: "Series") -> int | None:
    """Index of the first True in ``where``; None if there is none."""
    places = np.flatnonzero(where.to_numpy())
    return int(places[0]) if len(places) else None


def _refuse_missing(path: Path, name: str, missing: "Series", column: Column, remedy: str = FILLED) -> None:
    if column.fill is None and not column.indicator and (line := _first(missing)) is not None:
        raise UserError(f"{path}: line {line + 1}: {name} is missing; allowed: {remedy}")


def _numbers(path: Path, name: str, values: "Series", column: Numeric, is_target: bool = False) -> np.ndarray:
    """Scaled numbers of a feature, or of the target, which has no declaration that could allow more."""
    others = "" if is_target else ", or `values` in place of `range` in the column's declaration"
    texts = _strings(values)
    missing, numbers = texts.eq("") | _is_nan(texts), as_numbers(texts)
    wrong = ~missing & np.isnan(numbers)
    if (line := _first(wrong)) is not None:
        raise UserError(
            f"{path}: line {line + 1}: {name} is {shown(texts.iloc[line])}; allowed: numbers{others}"
        )
    _refuse_missing(path, name, missing, column, "a number" if is_target else FILLED)
    low, high = column.range
    numbers = np.where(missing, low if column.fill is None else column.fill, numbers)
    scaled = 2 * (np.clip(numbers, low, high) - low) / (high - low) - 1
    parts = [scaled, missing.to_numpy(np.float64)] if column.indicator else [scaled]
    return np.stack(parts, axis=1).astype(np.float32)


def _categories(path: Path, name: str, values: "Series", column: Categorical) -> np.ndarray:
    texts = _strings(values)
    missing = texts.eq("") & ("" not in column.values)
    _refuse_missing(path, name, missing, column)
    if column.fill is not None:
        texts = texts.mask(missing, column.fill)
        missing = missing & False
    known = texts.isin(column.values)
    other = ~known & ~missing
    if not column.other and (line := _first(other)) is not None:
        allowed = listed(column.values, 10)
        raise UserError(
            f"{path}: line {line + 1}: {name} is {shown(texts.iloc[line])}; allowed: {allowed}, or `other: "
            "true` in the column's declaration"
        )
    parts = [texts.eq(value) for value in column.values]
    parts += [missing] * column.indicator + [other] * column.other
    return np.stack([part.to_numpy(np.float32) for part in parts], axis=1)
