"""YAML files as plain values."""

from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from pipeline.errors import UserError, printable


def read_yaml(path: Path) -> Any:
    """What a YAML file holds, as version 1.2.

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
    """What ``text`` holds, which is that of ``path``.

    Raises:
        UserError: it is not YAML; one line.
    """
    try:
        return YAML(typ="safe").load(text)
    # what a tag raises that doesn't fit its value, such as `!!bool maybe`, is of any kind
    except (YAMLError, ValueError, TypeError, LookupError, AttributeError, RecursionError) as problem:
        raise UserError(f"{path}: not YAML: {printable(' '.join(str(problem).split()))}") from problem
