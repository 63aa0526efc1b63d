"""Schema of a user's table: a YAML file with the label's classes and the columns that become features."""

from pathlib import Path
from typing import Any

from dprepro.errors import UserError, listed, reading, shown
from dprepro.pipeline.data.own import tables
from dprepro.pipeline.data.own.texts import no_column
from dprepro.pipeline.files import digest_file
from dprepro.pipeline.params.documents import flow, parse_yaml, read_yaml

_HEAD = """\
# Classes and columns of a table. Everything here is taken as public: don't look at private lines for it.
# A column is one of
#   {range: [0, 100]}                a number; values beyond the range move to its end
#   {values: [a, b]}                 one of these values
# and may have
#   fill: 0                          a value in place of a missing one
#   indicator: true                  a further feature that marks a missing value
#   other: true                      of values: a category for all others, which are refused otherwise
# Delete the lines of columns that are no features. Free text is none: `--texts` takes a column of it.
"""


def template(
    table: Path, label: str, like: Path | None = None, number: bool = False, people: str | None = None
) -> str:
    """Template of a schema with the names of a table's columns.

    ``like``: a public table with the same columns, which gives classes, ranges and values; None: these are
    left empty. ``number``: whether the label is a number; the schema then has no classes. ``people``: name of
    the column of people, which are no features; None: there is none.

    Raises:
        UserError: a file is no table or lacks the label, or the public table is the private one.
    """
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
            raise UserError(f"--like {like}: is the private table itself; allowed: a public table")
        found = tables.declared_by(like, label)
        classes, columns = flow(found["classes"]), found["columns"]
    content = ["columns:"] if number else [f"classes: {classes}", "columns:"]
    declared = {
        name: flow(columns[name]) if name in columns else "" for name in names if name not in (label, people)
    }
    content += [f"  {flow(name)}: {column}".rstrip() for name, column in declared.items()]
    return _HEAD + "\n".join(content) + "\n"


def read_schema(path: Path, target: str | None = None) -> dict[str, Any]:
    """Fields ``classes`` and ``columns`` of a declaration, from a schema.

    ``target``: name of the numeric column to predict; None: the label is a class, and the schema has classes.

    Raises:
        UserError: the file is missing, is no YAML or has other keys, or a column has no declaration.
    """
    with reading(path, "`dprepro new data --table` without --schema writes one"):
        content = read_yaml(path, typ="base")  # cells of a table are texts, such as 01 and true
    keys = ["columns"] if target else ["classes", "columns"]
    if not isinstance(content, dict) or content.keys() != set(keys):
        raise UserError(f"{path}: allowed: the {'key' if target else 'keys'} {' and '.join(keys)}")
    if not target and not (isinstance(content["classes"], list) and len(content["classes"]) > 1):
        raise UserError(f"{path}: classes: {shown(content['classes'])}; allowed: a list of two or more")
    if not isinstance(content["columns"], dict):
        raise UserError(f"{path}: columns: allowed: a declaration for each column")
    if empty := [name for name, column in content["columns"].items() if not column]:
        raise UserError(
            f"{path}: columns: {listed(empty, 5)}: not declared; allowed: a "
            "range, values, or no line for a column that is no feature"
        )
    if any("<<" in part for part in (content, content["columns"], *content["columns"].values())):
        raise UserError(f"{path}: has a merge key <<; allowed: all keys of each column")
    columns = {name: _typed(column, path) for name, column in content["columns"].items()}
    return {"classes": [target] if target else content["classes"], "columns": columns}


def _typed(column: Any, path: Path) -> Any:
    """Declaration of a column from texts; its values stay texts, and so does what replaces a missing one."""
    if not isinstance(column, dict):
        return column
    texts = ("values", "fill") if "values" in column else ()
    return {key: value if key in texts else _parsed(value, path) for key, value in column.items()}


def _parsed(value: Any, path: Path) -> Any:
    if isinstance(value, list):
        return [_parsed(each, path) for each in value]
    return parse_yaml(value, path) if isinstance(value, str) else value
