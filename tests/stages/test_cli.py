import os
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from stages.app import app

DPREPRO = Path(sys.executable).parent / "dprepro"
# What takes seconds to import; a stage imports it when it runs.
HEAVY = ("torch", "mlflow", "matplotlib", "opacus", "dp_accounting", "pandas", "scipy", "dvc")
NESTED = [["tan", "plan"], ["tan", "scale"], ["new", "data"], ["new", "row"], ["new", "level"]]


def names() -> list[str]:
    return sorted(typer.main.get_command(app).commands)  # type: ignore[attr-defined]


def pages() -> list[list[str]]:
    """The arguments of every page of help."""
    return [[], *([name] for name in names()), *NESTED]


def test_the_readmes_commands_are_there() -> None:
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    told = set(re.findall(r"`(?:dprepro )(\w+)", readme))
    assert {"train", "verify", "tan", "new"} <= told <= set(names())


@pytest.mark.parametrize("command", pages())
def test_every_command_has_help(command: list[str]) -> None:
    shown = CliRunner().invoke(app, [*command, "--help"], catch_exceptions=False).output
    assert " ".join(["Usage:", *command]) in shown.replace("root ", "")


def test_help_imports_nothing_heavy() -> None:
    probe = f"import sys, stages.app; print([name for name in {HEAVY} if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True).stdout
    assert found == "[]\n"


def test_a_mistake_is_one_line(tmp_path: Path) -> None:
    done = subprocess.run([DPREPRO, "train", "row"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1
    assert (
        done.stderr
        == "dprepro: params.yaml: No such file or directory; run this in the folder that holds params.yaml\n"
    )


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (["predict", "a" * 300, "b.png"], f"dprepro: {'a' * 300}: File name too long\n"),
        (["publish"], "partial: a name that is not UTF-8; rename the file or the folder\n"),
    ],
)
def test_a_name_that_the_system_refuses_is_one_line(tmp_path: Path, line: list[str], said: str) -> None:
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    folder.mkdir()
    (folder / "params.yaml").write_text("raw: {}\ndata: {}\nrows: {}\n")
    done = subprocess.run([str(DPREPRO), *line], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.endswith(said)
    assert done.stderr.count("\n") == 1


def test_the_version_is_told() -> None:
    assert CliRunner().invoke(app, ["--version"]).output == f"dprepro {version('dprepro')}\n"
