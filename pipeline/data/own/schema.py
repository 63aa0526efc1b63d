"""Schema of own files: a YAML file with keys of their declaration, such as the columns of a table."""

from pathlib import Path
from typing import Any

from dprepro.errors import UserError, listed, reading, shown
from dprepro.pipeline.data.own import tables
from dprepro.pipeline.data.own.texts import no_column
from dprepro.pipeline.files import digest_file, write_text
from dprepro.pipeline.params.documents import flow, parse_yaml, read_yaml

_HEAD = """\
# Label, classes and columns of a table, all taken as public: don't look at private lines for them.
# To predict a number, write its range in place of the classes, such as `target: [0, 100]`.
# A column is one of
#   {range: [0, 100]}                a number; values beyond the range move to its end
#   {values: [a, b]}                 one of these values
# and may have
#   fill: 0                          a value in place of a missing one
#   indicator: true                  a further feature that marks a missing value
#   other: true                      of values: a category for all others, which are refused otherwise
# Delete the lines of columns that are no features. Free text is none: `--texts` takes a column of it.
"""
_NOT_TEXTS = {
    *("test", "seed", "shape", "resize", "range", "clip", "target", "fill", "indicator", "other"),
    *("at_most", "count", "size", "mean", "std"),
}


def write_template(
    path: Path, table: Path, label: str, like: Path | None = None, people: str | None = None
) -> None:
    """Write a template of a schema with the names of a table's columns to ``path``, and print what is next.

    ``like``: a public table with the same columns, which gives classes, ranges and values; None: these are
    left empty. ``people``: name of the column of people, which are no features; None: there is none.

    Raises:
        UserError: the template is there already, a file is no table or lacks the label, or the public table
            is the private one.
    """
    if path.exists():
        raise UserError(f"{path}: is there already; use it with --schema {path}, or delete it")
    if not table.exists():
        raise UserError(f"{table}: missing; allowed: a CSV or Parquet file")
    if table.suffix.lower() not in tables.FORMATS:
        raise UserError(f"{table}: not as --table takes it; allowed: {', '.join(tables.FORMATS)}")
    names = tables.names(table)
    for option, column in (("label", label), ("group", people)):
        if column is not None and column not in names:
            raise UserError(f"--{option} {column}: {no_column(table, column, names)}")
    classes, columns = f"[]  # the values of {shown(label)}, in the order of their labels", {}
    if like is not None:
        if digest_file(like) == digest_file(table):
            raise UserError(f"--schema {like}: is the private table itself; allowed: a public table")
        found = tables.declared_by(like, label)
        classes, columns = flow(found["classes"]), found["columns"]
    content = [f"label: {flow(label)}", f"classes: {classes}"]
    if people is not None:
        content.append(f"unit: {{column: {flow(people)}, at_most: 1}}  # lines of a person that are kept")
    declared = {
        name: flow(columns[name]) if name in columns else "" for name in names if name not in (label, people)
    }
    content += ["columns:", *(f"  {flow(name)}: {column}".rstrip() for name, column in declared.items())]
    write_text(path, _HEAD + "\n".join(content) + "\n")
    source = f"from the public lines of {like}" if like else "from the names of the columns alone"
    print(f"{path}: written {source}")
    print(f"next: fill it without a look at the private lines, then the same command with --schema {path}")


def read_schema(path: Path) -> dict[str, Any]:
    """Fields of a declaration of own files and `public`, as the file says them; names and values are texts.

    Raises:
        UserError: the file is missing, is no YAML mapping, has keys that the command finds by itself, or a
            column without a declaration.
    """
    with reading(path, "`dprepro new data --table` without --schema writes one"):
        content = read_yaml(path, typ="base")  # cells of a table are texts, such as 01 and true
    if not isinstance(content, dict):
        raise UserError(f"{path}: {type(content).__name__}; allowed: keys with their values")
    if found := [key for key in ("kind", "path", "digest") if key in content]:
        raise UserError(f"{path}: {found[0]}: the command finds it by itself; allowed: other keys")
    columns = content.get("columns")
    if isinstance(columns, dict) and (empty := [name for name, column in columns.items() if not column]):
        raise UserError(
            f"{path}: columns: {listed(empty, 5)}: not declared; allowed: a "
            "range, values, or no line for a column that is no feature"
        )
    fields: dict[str, Any] = _typed(content, path)
    return fields


def _typed(value: Any, path: Path, key: str = "") -> Any:
    """Value of ``key`` from texts. Values of a column stay texts, and so does what replaces a missing one."""
    if isinstance(value, dict):
        texts = "fill" if "values" in value else None
        return {name: each if name == texts else _typed(each, path, name) for name, each in value.items()}
    return _parsed(value, path) if key in _NOT_TEXTS else value


def _parsed(value: Any, path: Path) -> Any:
    if isinstance(value, list):
        return [_parsed(each, path) for each in value]
    return parse_yaml(value, path) if isinstance(value, str) else value
