import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from stages.app import app, main

# What takes seconds to import; a stage imports it when it runs.
HEAVY = ("torch", "mlflow", "matplotlib", "opacus", "dp_accounting", "pandas", "scipy", "dvc")
NESTED = [["tan", "plan"], ["new", "data"], ["new", "row"], ["new", "level"]]


def names() -> list[str]:
    return sorted(typer.main.get_command(app).commands)  # type: ignore[attr-defined]


def pages() -> list[list[str]]:
    """The arguments of every page of help."""
    return [[], *([name] for name in names()), *NESTED]


def test_the_page_of_commands_lists_every_command() -> None:
    page = (Path(__file__).parents[2] / "docs/commands.md").read_text()
    assert set(re.findall(r"`(?:dprepro )(\w+)", page)) == set(names())


@pytest.mark.parametrize("command", pages())
def test_every_command_has_help(command: list[str]) -> None:
    shown = CliRunner().invoke(app, [*command, "--help"], catch_exceptions=False).output
    assert " ".join(["Usage:", *command]) in shown.replace("root ", "")


def test_help_imports_nothing_heavy() -> None:
    probe = f"import sys, stages.app; print([name for name in {HEAVY} if name in sys.modules])"
    output = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True).stdout
    assert output == "[]\n"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            ["train", "row"],
            "params.yaml: No such file or directory; run this in the folder",
        ),
        (["predict", "\x1b[2J", "x"], "\\x1b[2J/config.json: can't be read: No such file or directory"),
    ],
)
def test_a_mistake_is_one_line(
    line: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["dprepro", *line])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    told = capsys.readouterr().err
    assert told.startswith(f"dprepro: {said}")
    assert told.count("\n") == 1


def test_a_file_that_the_system_refuses_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["dprepro", "init", "a" * 300])
    with pytest.raises(SystemExit):
        main()
    assert capsys.readouterr().err == f"dprepro: {'a' * 300}: File name too long\n"


def test_the_version_is_told() -> None:
    assert CliRunner().invoke(app, ["--version"]).output == f"dprepro {version('dprepro')}\n"
