"""One name, one thing: no two modules of the product define a class of the same name."""

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDERS = ("dprepro", "pipeline", "stages")


def test_no_class_name_is_defined_twice() -> None:
    places = defaultdict(set)
    files = {path.resolve() for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")}
    for path in files:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                places[node.name].add(path.relative_to(ROOT).as_posix())
    assert len(places) > 200
    assert {name: found for name, found in places.items() if len(found) > 1} == {}
