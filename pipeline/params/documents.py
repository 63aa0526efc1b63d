"""YAML files as plain values, read only where they are no larger than anybody would write them.

A few aliases of aliases stand for more than any memory holds, and brackets nest deeper than a parser's stack:
so events are counted first, which takes neither.
"""

from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from ruamel.yaml.events import AliasEvent, CollectionEndEvent, CollectionStartEvent, ScalarEvent

from pipeline.errors import UserError, shown
from pipeline.limits import YAML_BYTES, YAML_NESTING, YAML_NODES


def read_yaml(path: Path) -> Any:
    """What a YAML file holds, as version 1.2.

    Raises:
        OSError: it can't be read.
        UserError: it is not YAML, or more than it may be; one line.
    """
    try:
        if path.stat().st_size > YAML_BYTES:
            raise ValueError(f"larger than {YAML_BYTES} bytes")
        text = path.read_bytes().decode()
    except ValueError as problem:
        raise UserError(f"{path}: not YAML: {' '.join(str(problem).split())}") from problem
    return parse_yaml(text, path)


def parse_yaml(text: str, path: Path) -> Any:
    """What ``text`` holds, which is that of ``path``.

    Raises:
        UserError: it is not YAML, or more than it may be; one line.
    """
    try:
        _check_size(text)
        return YAML(typ="safe").load(text)
    except (YAMLError, ValueError, TypeError, OverflowError) as problem:
        raise UserError(f"{path}: not YAML: {' '.join(str(problem).split())}") from problem
    except (LookupError, AttributeError) as problem:
        # of a tag that doesn't fit its value, such as `!!bool maybe`
        raise UserError(
            f"{path}: not YAML: a tag that doesn't fit its value: {shown(str(problem))}"
        ) from problem


def _check_size(text: str) -> None:
    """Make sure that the document doesn't nest too deeply, nor stand for too many values.

    Raises:
        ValueError: it does.
        YAMLError: it is not YAML.
    """
    sizes: dict[str, int] = {}  # of what each anchor stands for
    open_nodes: list[tuple[str | None, int]] = []  # anchor and size so far of what is open
    for event in YAML(typ="safe").parse(text):
        if isinstance(event, CollectionStartEvent):
            open_nodes.append((event.anchor, 1))
            if len(open_nodes) > YAML_NESTING:
                raise ValueError(f"nested more than {YAML_NESTING} levels deep")
            continue
        if isinstance(event, AliasEvent):
            if event.anchor not in sizes:
                raise ValueError(f"alias {shown(event.anchor)} stands for nothing, or for itself")
            anchor, size = None, sizes[event.anchor]
        elif isinstance(event, ScalarEvent):
            anchor, size = event.anchor, 1
        elif isinstance(event, CollectionEndEvent):
            anchor, size = open_nodes.pop()
        else:
            continue
        if anchor is not None:
            sizes[anchor] = size
        if open_nodes:
            open_nodes[-1] = (open_nodes[-1][0], open_nodes[-1][1] + size)
        if size > YAML_NODES or (open_nodes and open_nodes[-1][1] > YAML_NODES):
            raise ValueError(f"stands for more than {YAML_NODES} values")
