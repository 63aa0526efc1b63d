"""`dprepro init`: a laboratory of one's own."""

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
) -> None:
    """Begin a laboratory: a paper's table, a row that trains in a minute, DVC's stages, git, and CI."""
    from pipeline.errors import UserError
    from pipeline.files import writing

    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder}: is there and not empty; allowed: an empty folder, or a new one")
    if shutil.which("git") is None:
        raise UserError("git: not installed; DVC keeps track of results with it")
    try:
        with writing(folder):
            _fill(folder)
        # where there is a checkout around it, the laboratory is a part of that
        inside = ["git", "-C", str(folder), "rev-parse", "--is-inside-work-tree"]
        if subprocess.run(inside, capture_output=True).returncode:
            made = subprocess.run(["git", "init", "--quiet", str(folder)], capture_output=True, text=True)
            if made.returncode:
                raise UserError(f"{folder}: git can't make a checkout of it: {' '.join(made.stderr.split())}")
            _guard(folder / ".git/hooks/pre-commit")
    except BaseException:
        for path in folder.iterdir() if folder.exists() else ():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        raise
    print(f"{folder}: a laboratory. There `dvc repro` trains its first row, and writes reports/index.html")


def _guard(hook: Path) -> None:
    """Let git refuse commits with private files, where no template of git's brought another hook."""
    if not hook.exists():
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(f"#!/bin/sh\nexec {shlex.quote(sys.executable)} -m pipeline.data.own.private\n")
        hook.chmod(0o755)


def _fill(folder: Path) -> None:
    """Write what a laboratory begins with, and which dprepro it is made for."""
    from importlib.metadata import version

    folder.mkdir(parents=True, exist_ok=True)
    for path in TEMPLATE.rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            parts = path.relative_to(TEMPLATE).parts
            target = folder.joinpath(*(NAMES.get(part, part) for part in parts))
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())
    (folder / "requirements.txt").write_text(f"dprepro[lab]=={version('dprepro')}\n")
