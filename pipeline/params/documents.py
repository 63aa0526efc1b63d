"""YAML files as plain values."""

from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from pipeline.errors import UserError, printable


def read_yaml(path: Path) -> Any:
    """Content of a YAML 1.2 file.

    Raises:
        OSError: it can't be read.
        UserError: it is not YAML; one line.
    """
    try:
        text = path.read_bytes().decode()
    except ValueError as problem:
        raise UserError(f"{path}: not YAML: {problem}") from problem
    return parse_yaml(text, path)


def parse_yaml(text: str, path: Path) -> Any:
    """Content of ``text``; ``path`` is its file, for messages.

    Raises:
        UserError: it is not YAML; one line.
    """
    try:
        return YAML(typ="safe").load(text)
    # a tag with a wrong value, such as `!!bool maybe`, may raise any exception
    except (YAMLError, ValueError, TypeError, LookupError, AttributeError, RecursionError) as problem:
        raise UserError(f"{path}: not YAML: {printable(' '.join(str(problem).split()))}") from problem
