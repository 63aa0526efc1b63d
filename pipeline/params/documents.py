"""YAML files as plain values, and JSON files as checked records."""

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.constructor import DuplicateKeyError
from ruamel.yaml.error import YAMLError

from dprepro.errors import UserError, printable, reading
from dprepro.pipeline.files import RECORD_BYTES

M = TypeVar("M", bound=BaseModel)
T = TypeVar("T")


def read_yaml(path: Path, pure: bool = False, typ: str = "safe") -> Any:
    """Content of a YAML 1.2 file.

    ``pure``: True for the slower parser, which accepts more files. ``typ``: 'base' leaves all values as text.

    Raises:
        OSError: the file can't be read.
        UserError: the file is not YAML; the message is one line.
    """
    try:
        text = path.read_bytes().decode()
    except ValueError as problem:
        raise UserError(f"{path}: not YAML: {problem}") from problem
    return parse_yaml(text, path, pure, typ)


def parse_yaml(text: str, path: Path, pure: bool = False, typ: str = "safe") -> Any:
    """Content of the YAML ``text``; ``path`` is its file, for messages. ``pure``, ``typ``: as in `read_yaml`.

    Raises:
        UserError: ``text`` is not YAML; the message is one line.
    """
    try:
        return YAML(typ=typ, pure=pure).load(text)
    except DuplicateKeyError as problem:
        what = str(problem.problem).partition(" with value")[0]
        line = problem.problem_mark.line + 1
        raise UserError(f"{path}: line {line}: {printable(what, 100)}; allowed: each key once") from problem
    # a tag with a wrong value, such as `!!bool maybe`, may raise any exception
    except (YAMLError, ValueError, TypeError, LookupError, AttributeError, RecursionError) as problem:
        raise UserError(f"{path}: not YAML: {printable(' '.join(str(problem).split()))}") from problem


def flow(value: Any) -> str:
    """A value in one line of YAML: JSON, but ``.inf`` for infinity."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_key(key)}: {flow(each)}" for key, each in value.items()) + "}"
    if value == math.inf:
        return ".inf"
    text = json.dumps(value, ensure_ascii=False)
    # YAML reads some unprintable characters as line breaks
    return "".join(char if char.isprintable() else f"\\U{ord(char):08X}" for char in text)


def _key(name: str) -> str:
    return name if re.fullmatch(r"[a-z_]+", name) else flow(name)


def read_record(path: Path, kind: type[M]) -> M:
    """Record of the class ``kind`` in a JSON file.

    Raises:
        UserError: the file can't be read, is too large, or has no such record; the message is one line.
    """
    return _checked(path, lambda: kind.model_validate_json(read_bytes(path)))


def parse_lines(path: Path, content: bytes, kind: TypeAdapter[T]) -> list[T]:
    """Records in the ``content`` of the file ``path``, a JSON object a line; errors as in `read_record`."""
    return _checked(path, lambda: [kind.validate_json(line) for line in content.splitlines()])


def read_bytes(path: Path) -> bytes:
    """Content of a file of records.

    Raises:
        UserError: the file can't be read, or is too large.
    """
    with reading(path):
        if path.stat().st_size > RECORD_BYTES:
            raise UserError(f"{path}: not what `dprepro` writes: larger than {RECORD_BYTES} bytes")
        return path.read_bytes()


def _checked(path: Path, parse: Callable[[], T]) -> T:
    try:
        return parse()
    except ValidationError as problem:
        first = problem.errors(include_input=False)[0]
        where = printable(".".join(map(str, first["loc"])), 100)
        what = f"{where}: {first['msg']}".lstrip(": ")
        raise UserError(f"{path}: not what `dprepro` writes: {what}") from problem
