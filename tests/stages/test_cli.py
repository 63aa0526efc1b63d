"""Help, errors and imports of the commands."""

import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
import typer
from typer.testing import CliRunner

from dprepro.stages.app import app, main
from dprepro.stages.run_commands import run_commands

ROOT = Path(__file__).parents[2]
# What takes seconds to import; a stage imports it when it runs.
HEAVY = {"torch", "mlflow", "matplotlib", "opacus", "dp_accounting", "pandas", "scipy.stats", "dvc"}
NESTED = [["tan", "plan"], ["new", "data"], ["new", "row"], ["new", "level"]]


def names() -> list[str]:
    return sorted(typer.main.get_command(app).commands)  # type: ignore[attr-defined]


def pages() -> list[list[str]]:
    """The arguments of every page of help."""
    return [[], *([name] for name in names()), *NESTED]


def test_the_page_of_commands_lists_every_command() -> None:
    page = (ROOT / "docs/commands.md").read_text()
    assert set(re.findall(r"`(?:dprepro )(\w+)", page)) == set(names())


@pytest.mark.parametrize("command", pages())
def test_every_command_has_help(command: list[str]) -> None:
    shown = CliRunner().invoke(app, [*command, "--help"], catch_exceptions=False).output
    assert " ".join(["Usage:", *command]) in shown.replace("root ", "")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (["train", "row"], "params.yaml: can't be read: No such file or directory; run this in the folder"),
        (["predict", "\x1b[2J", "x"], "\\x1b[2J/config.json: can't be read: No such file or directory"),
        (["init", 300 * "a"], f"{300 * 'a'}: File name too long\n"),
        (["audit", "row", "--level", "epsilon=3"], "--level epsilon=3: allowed with --model"),
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


def test_a_gpu_that_is_too_small_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("dprepro.stages.app.app", Mock(side_effect=torch.cuda.OutOfMemoryError))
    with pytest.raises(SystemExit):
        main()
    line = "dprepro: the GPU's memory is too small; lower --physical or --workers\n"
    assert capsys.readouterr().err == line


def test_output_that_cannot_be_written_is_a_line() -> None:
    with open("/dev/full", "w") as full:
        line = [sys.executable, "-m", "dprepro.stages", "--version"]
        done = subprocess.run(line, cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "dprepro: output: No space left on device\n")


def test_the_version_is_told() -> None:
    assert CliRunner().invoke(app, ["--version"]).output == f"dprepro {version('dprepro')}\n"


def test_what_fails_says_so_as_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "params.yaml").write_text("rows: 3\n")
    monkeypatch.setattr("sys.argv", [])  # which it sets
    assert run_commands([["epsilon", "--help"], ["ledger", "nothing"], ["epsilon", "--help"]]) == 1
    told = capsys.readouterr()
    assert told.out.count("Usage: dprepro epsilon") == 1
    assert told.err.startswith("dprepro: params.yaml: ")


def imported(*commands: str) -> set[str]:
    """Heavy libraries that the commands import, in a process of their own."""
    script = (
        "import sys\nfrom dprepro.stages.app import app\n"
        f"for line in {commands!r}: app(line.split(), standalone_mode=False)\n"
        f"print('imported:', *({HEAVY!r} & sys.modules.keys()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    *_, last = done.stdout.splitlines()
    return set(last.removeprefix("imported:").split())


def test_what_there_is_to_do_imports_nothing_heavy() -> None:
    assert imported("status", "plan") == set()


def test_a_row_is_verified_without_mlflow_and_opacus() -> None:
    assert not imported("verify davody-t2-lenet-300-100") & {"mlflow", "opacus", "dvc", "pandas"}
