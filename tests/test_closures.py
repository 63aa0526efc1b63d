"""Modules that an entry point imports, at any place in its code: what one must know to change it."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# by entry point: largest number of modules, itself included
MOST = {
    "dprepro.accounting": 14,
    "dprepro.auditing": 8,
    "dprepro.samplers": 6,
    "dprepro.stages.train": 45,
    "dprepro.stages.report": 40,
    "dprepro.stages.verify": 50,
}


def _path(module: str) -> Path | None:
    """File of a module of this project; None for a package's attribute and for other projects' modules."""
    folder = ROOT / module.replace(".", "/")
    candidates = (folder.with_suffix(".py"), folder / "__init__.py")
    return next((path for path in candidates if module.startswith("dprepro") and path.is_file()), None)


def _imports(path: Path) -> set[str]:
    """Modules of this project that a file imports, but for types alone."""
    tree, found = ast.parse(path.read_text()), set[str]()
    for_types = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if node in for_types:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports name the whole path"
            found |= {f"{node.module}", *(f"{node.module}.{alias.name}" for alias in node.names)}
    return {module for module in found if _path(module)}


@pytest.mark.parametrize("entry", MOST)
def test_an_entry_point_imports_few_modules(entry: str) -> None:
    seen, todo = set[str](), {entry}
    while todo:
        module = todo.pop()
        path = _path(module)
        assert path is not None, module
        seen.add(module)
        todo |= _imports(path) - seen
    assert len(seen) <= MOST[entry], sorted(seen)
