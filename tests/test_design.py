"""The map of the code is true: rooms, their order, and what a page of it can be compared with."""

import re
import tomllib
from pathlib import Path

from dprepro.pipeline.identity import versions

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/design.md").read_text(encoding="utf-8")
TABLE = re.findall(r"^\| (`[^|]*`) \|", PAGE, re.MULTILINE)


def _room(module: str) -> str:
    """Name of a room on the page; `dprepro` for the library's modules."""
    *folder, room = module.removeprefix("dprepro.").split(".")
    return room if folder == ["pipeline"] or room in ("benchmarks", "stages") else "dprepro"


def test_the_rooms_stand_in_the_order_that_the_linter_holds() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (contract,) = (contract for contract in contracts if contract["name"] == "rooms")
    layers = [{_room(module) for module in layer.split(" | ")} for layer in contract["layers"]]
    below = [rooms for layer in layers if (rooms := layer - {"dprepro"})]  # the library has its own order
    assert [set(re.findall(r"`([^`]*)`", row)) for row in TABLE] == [*below, {"dprepro"}]


def test_the_library_imports_nothing_of_pipeline_or_stages() -> None:
    """The linter's contract names every module of the library; here their text is searched, too."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (contract,) = (contract for contract in contracts if contract["name"] == "the library lies below")
    files = [path.relative_to(ROOT) for path in ROOT.glob("dprepro/**/*.py")]
    library = [path for path in files if not {"pipeline", "stages"} & {*path.parts}]
    modules = {path.parts[1].removesuffix(".py") for path in library} - {"__init__"}
    assert {f"dprepro.{module}" for module in modules} == {*contract["source_modules"]}
    for path in library:
        assert not re.search(
            r"import.*\b(pipeline|stages)\b|dprepro\.(pipeline|stages)", (ROOT / path).read_text()
        )


def test_every_room_is_on_the_map() -> None:
    named = set(re.findall(r"`([^`]*)`", " ".join(TABLE)))
    rooms = {path.parent.name for path in ROOT.glob("pipeline/*/__init__.py")}
    modules = {path.stem for path in ROOT.glob("pipeline/[a-z]*.py")}
    assert rooms | modules | {"benchmarks", "dprepro", "stages"} == named


def test_versions_and_stages_are_the_ones_there_are() -> None:
    declared = {
        name for name in vars(versions) if name.isupper() and isinstance(getattr(versions, name), int)
    }
    assert declared <= set(re.findall(r"`([A-Z_]+)`", PAGE))
    stages = set(re.findall(r"^  (\w+):$", (ROOT / "dvc.yaml").read_text(), re.MULTILINE))
    assert stages - {"identity", "own", "account"} <= set(re.findall(r"\w+", PAGE))
