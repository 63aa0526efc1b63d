"""The map of the code is true: rooms, their order, names, and what a page of it can be compared with."""

import ast
import re
import tomllib
from collections import defaultdict
from itertools import groupby
from math import ceil
from pathlib import Path

from dprepro.pipeline.identity import validity

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/design.md").read_text(encoding="utf-8")
TABLE, LIBRARY = (
    [set(re.findall(r"`([^`]*)`", row)) for row in re.findall(r"^\| (`[^|]*`) \|", table, re.MULTILINE)]
    for table in PAGE.split("The library's modules")
)
CONTRACTS = {
    contract["name"]: contract
    for contract in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
}


def test_the_rooms_stand_in_the_order_that_the_linter_holds() -> None:
    """Those of the library too; a row of its table may be several layers."""
    layers = [
        {module.removeprefix("dprepro.") for module in layer.split(" | ")}
        for layer in CONTRACTS["rooms"]["layers"]
    ]
    above = [layer for layer in layers if layer <= {"benchmarks", "stages"} or "pipeline" in str(layer)]
    assert [*({room.removeprefix("pipeline.") for room in layer} for layer in above), {"dprepro"}] == TABLE
    rows = groupby(layers[len(above) :], lambda layer: [layer <= row for row in LIBRARY])
    assert [set().union(*row) for _, row in rows] == LIBRARY


def test_the_library_imports_nothing_of_pipeline_or_stages() -> None:
    """The linter's contract names every module of the library; here their text is searched, too."""
    files = [path.relative_to(ROOT) for path in ROOT.glob("dprepro/**/*.py")]
    library = [path for path in files if not {"pipeline", "stages"} & {*path.parts}]
    modules = {path.parts[1].removesuffix(".py") for path in library} - {"__init__"}
    named = {*CONTRACTS["the library lies below"]["source_modules"]}
    assert {f"dprepro.{module}" for module in modules} == named
    assert modules == set().union(*LIBRARY)
    for path in library:
        assert not re.search(
            r"import.*\b(pipeline|stages)\b|dprepro\.(pipeline|stages)", (ROOT / path).read_text()
        )


def test_the_page_fits_on_two_screens() -> None:
    """Of 50 lines of 120 columns."""
    assert sum(max(1, ceil(len(line) / 120)) for line in PAGE.splitlines()) <= 100


def test_every_room_is_on_the_map() -> None:
    rooms = {path.parent.name for path in ROOT.glob("pipeline/*/__init__.py")}
    modules = {path.stem for path in ROOT.glob("pipeline/[a-z]*.py")}
    assert rooms | modules | {"benchmarks", "dprepro", "stages"} == set().union(*TABLE)


def test_versions_are_the_ones_there_are() -> None:
    declared = {name for name, value in vars(validity).items() if name.isupper() and type(value) is int}
    assert declared <= set(re.findall(r"`([A-Z_]+)`", PAGE))


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
