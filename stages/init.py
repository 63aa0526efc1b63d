"""`dprepro init`: a laboratory of one's own."""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

TEMPLATE = Path(__file__).with_name("laboratory")
# What has another name in a laboratory: wheels leave files out that begin with a dot, and DVC takes every
# dvc.yaml of a checkout for its own
NAMES = {
    "dvc": ".dvc",
    "dvcignore": ".dvcignore",
    "github": ".github",
    "gitignore": ".gitignore",
    "stages.yaml": "dvc.yaml",
}


def init(
    folder: Annotated[Path, typer.Argument(help="Empty, or to be made.")],
    origin: Annotated[
        Path | None,
        typer.Option(
            "--from", help="A laboratory to begin with what git tracks of it: all but results and dvc.lock."
        ),
    ] = None,
) -> None:
    """Begin a laboratory: a paper's table, a row that trains in a minute, DVC's stages, git, and CI."""
    from pipeline.errors import UserError, writing

    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder}: is there and not empty; allowed: an empty folder, or a new one")
    if shutil.which("git") is None:
        raise UserError("git: not installed; DVC keeps track of results with it")
    files = _template() if origin is None else _tracked(origin)
    try:
        with writing(folder):
            _fill(folder, files)
        # where there is a checkout around it, the laboratory is a part of that
        inside = ["git", "-C", str(folder), "rev-parse", "--is-inside-work-tree"]
        if subprocess.run(inside, capture_output=True).returncode:
            subprocess.run(["git", "init", "--quiet", str(folder)], check=True)
            _guard(folder / ".git/hooks/pre-commit")
    except BaseException:
        for path in folder.iterdir() if folder.exists() else ():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        raise
    begun = "its first row" if origin is None else f"the rows of {origin}"
    print(f"{folder}: a laboratory. There `dvc repro` trains {begun}, and writes reports/index.html")


def _guard(hook: Path) -> None:
    """Let git refuse commits with private files, where no template of git's brought another hook."""
    if not hook.exists():
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(f"#!/bin/sh\nexec {shlex.quote(sys.executable)} -m pipeline.data.own.private\n")
        hook.chmod(0o755)


def _template() -> dict[Path, Path]:
    """What a laboratory begins with: each file by its place in the laboratory."""
    there = [path for path in TEMPLATE.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    return {
        Path(*(NAMES.get(part, part) for part in path.relative_to(TEMPLATE).parts)): path for path in there
    }


def _tracked(origin: Path) -> dict[Path, Path]:
    """What git tracks of another laboratory, and what isn't a result of it."""
    from pipeline.errors import UserError

    line = ["git", "-C", str(origin), "ls-files", "-z"]
    listed = os.fsdecode(subprocess.run(line, capture_output=True).stdout)
    names = [Path(name) for name in listed.split("\0") if name]
    if Path("params.yaml") not in names:
        raise UserError(f"--from {origin}: git tracks no params.yaml there; allowed: a laboratory's folder")
    kept = [name for name in names if name.parts[0] != "reports" and name.name != "dvc.lock"]
    return {name: origin / name for name in kept if (origin / name).is_file()}


def _fill(folder: Path, files: dict[Path, Path]) -> None:
    """Write these files, and which dprepro the laboratory is made for."""
    from importlib.metadata import version

    folder.mkdir(parents=True, exist_ok=True)
    for place, path in files.items():
        target = folder / place
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes())
    (folder / "requirements.txt").write_text(f"dprepro[lab]=={version('dprepro')}\n")
