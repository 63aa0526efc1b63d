"""What moves a digest of code, and what doesn't."""

from pathlib import Path

import pytest

from pipeline.identity.syntax import Definition, Sources

ROOT = Definition("pipeline.engine", "train")
FILES = {
    "__init__.py": "",
    "engine.py": '''
"""The loop."""

from math import log

from pipeline import tools
from pipeline.tools import scaled as times

RATE = 0.5


def train(value: float) -> float:
    """Train."""
    if value < 0:
        raise ValueError(f"{value}: below zero")
    return times(value) * RATE + log(2) + tools.shifted(value)


def other() -> int:
    return 7
''',
    "tools.py": '''
from pipeline.basics import Base


def scaled(value: float) -> float:
    return 3 * value


def shifted(value: float) -> float:
    return Base().shift + value


def unused() -> int:
    return 1
''',
    "basics.py": '''
class Base:
    """A base."""

    shift = 1.0

    @check
    def problem(self) -> str:
        return "nothing"
''',
}  # fmt: skip


def digest(folder: Path, **changes: str) -> str:
    """The root's digest, of the package with files changed."""
    package = folder / "pipeline"
    package.mkdir(exist_ok=True)
    for name in package.glob("*.py"):
        name.unlink()
    for name, text in {**FILES, **{f"{name}.py": text for name, text in changes.items()}}.items():
        (package / name).write_text(text)
    return Sources(package).digest([ROOT])


def edited(name: str, before: str, after: str) -> dict[str, str]:
    assert before in FILES[f"{name}.py"]
    return {name: FILES[f"{name}.py"].replace(before, after)}


@pytest.mark.parametrize(
    "change",
    [
        edited("engine", '"""Train."""', '"""Train at last."""'),
        edited("engine", "RATE = 0.5", "# as in the paper\nRATE  =  0.5"),
        edited("engine", "below zero", "must not be negative"),
        edited("engine", "return 7", "return 8"),
        edited("tools", "return 1", "return 2"),
        edited("basics", '"nothing"', '"something"'),
        {
            "engine": FILES["engine.py"]
            .replace("tools import scaled as times", "new import scaled")
            .replace("times(", "scaled("),
            "new": "def scaled(value: float) -> float:\n    return 3 * value\n",
        },
    ],
    ids=["docstring", "comment", "error", "unreached", "unreached import", "check", "moved, and its alias"],
)
def test_what_cannot_move_a_number_moves_no_digest(tmp_path: Path, change: dict[str, str]) -> None:
    assert digest(tmp_path, **change) == digest(tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        edited("engine", "RATE = 0.5", "RATE = 0.25"),
        edited("engine", "value < 0", "value <= 0"),
        edited("engine", "from math import log", "from numpy import log"),
        edited("tools", "3 * value", "-3 * value"),
        edited("basics", "shift = 1.0", "shift = 2.0"),
        {"basics": FILES["basics.py"] + "\nBase.shift = 3.0\n"},
        {"basics": FILES["basics.py"] + "\nprint(Base)\n"},
    ],
    ids=[
        "constant",
        "condition",
        "import",
        "function",
        "class, two imports away",
        "set from outside",
        "effect",
    ],
)
def test_what_can_move_a_number_moves_the_digest(tmp_path: Path, change: dict[str, str]) -> None:
    assert digest(tmp_path, **change) != digest(tmp_path)


def test_a_root_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    digest(tmp_path)
    with pytest.raises(KeyError, match="nothing"):
        Sources(tmp_path / "pipeline").digest([Definition("pipeline.engine", "nothing")])
