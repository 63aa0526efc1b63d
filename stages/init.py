"""`dprepro init`: a new laboratory."""

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from dprepro.errors import UserError
from dprepro.pipeline.files import is_temporary, write_bytes, write_text

TEMPLATE, PRIVATE = Path(__file__).with_name("laboratory"), "private"
PUBLIC = ("papers", "github")  # not in a private laboratory: its reports must not reach other servers
# Names in a laboratory, by name in the template. They differ because wheels leave out names that begin with a
# dot, and DVC reads every dvc.yaml of a checkout.
NAMES = {
    "dvc": ".dvc",
    "dvcignore": ".dvcignore",
    "github": ".github",
    "gitignore": ".gitignore",
    "gitattributes": ".gitattributes",
    "stages.yaml": "dvc.yaml",
}


def init(
    folder: Annotated[Path, typer.Argument(help="An empty or new folder.")],
    private: Annotated[
        bool, typer.Option("--private", help="For private data: without papers, tables, first row and CI.")
    ] = False,
) -> None:
    """Create a laboratory: a folder with a paper's table, a first row, DVC's stages, git and CI."""
    files = _files(private)
    if folder.exists() and not (folder.is_dir() and _begun(folder, files)):
        raise UserError(f"{folder}: is there and not empty; allowed: an empty folder, or a new one")
    if shutil.which("git") is None:
        raise UserError("git: not installed; DVC keeps track of results with it")
    was_empty = not folder.exists() or not any(folder.iterdir())
    try:
        _make(folder, files)
    except BaseException:
        for path in folder.iterdir() if was_empty and folder.exists() else ():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        raise
    first = "`dvc repro` trains its first row, and"
    if private:
        first = "`dprepro new data` declares your files, and `dvc repro`"
    print(f"{folder}: a laboratory. There {first} writes reports/index.html")


def _make(folder: Path, files: dict[str, bytes]) -> None:
    """Write the files and make the folder a git checkout. An earlier, killed attempt is completed."""
    for path in [path for path in folder.rglob("*") if is_temporary(path)]:
        path.unlink()
    for name, content in files.items():
        write_bytes(folder / name, content)
    # inside another checkout, the laboratory is a part of that checkout
    inside = ["git", "-C", str(folder), "rev-parse", "--is-inside-work-tree"]
    # 'false' in a bare repository
    if (folder / ".git").exists() or subprocess.run(inside, capture_output=True).stdout.strip() != b"true":
        made = subprocess.run(["git", "init", "--quiet", "--", str(folder)], capture_output=True, text=True)
        if made.returncode:
            raise UserError(f"{folder}: git can't make a checkout of it: {' '.join(made.stderr.split())}")
        _guard(folder / ".git/hooks/pre-commit")


def _guard(hook: Path) -> None:
    """Install a hook that refuses commits of private files, unless a git template has installed another."""
    script = f"#!/bin/sh\nexec {shlex.quote(sys.executable)} -m dprepro.pipeline.data.own.private\n"
    if not hook.exists():
        write_text(hook, script)
    if hook.read_text(errors="replace") == script:
        hook.chmod(0o755)


def _files(private: bool) -> dict[str, bytes]:
    """Contents of a new laboratory's files, by name. requirements.txt has the present dprepro.

    A private laboratory has no `PUBLIC` files. Files in `PRIVATE` replace files of the same name.
    """
    files = {"requirements.txt": f"{_requirement()}\n".encode()}
    for path in TEMPLATE.rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            parts = path.relative_to(TEMPLATE).parts
            if parts[0] in ((PRIVATE, *PUBLIC) if private else (PRIVATE,)):
                continue
            files["/".join(NAMES.get(part, part) for part in parts)] = path.read_bytes()
    files["dvc.yaml"] = stages(files["dvc.yaml"].decode()).encode()
    if private:
        files |= {path.name: path.read_bytes() for path in (TEMPLATE / PRIVATE).iterdir()}
    return files


def stages(checkout: str) -> str:
    """Contents of a laboratory's dvc.yaml, from this one's: DVC doesn't see the installed code change."""
    return re.sub(r"    deps:\n(      - .*\n)*", "    always_changed: true\n", checkout, count=1)


def without_audits(stages: str) -> str:
    """Contents of a dvc.yaml without the attacks on code, which take longer than a demo's other stages."""
    return re.sub(r"  # Attacks on(.|\n)*?\n\n| +- reports/audits\n", "", stages)


def _requirement() -> str:
    """Line for pip with the present dprepro: its wheel, folder or commit, or its version on an index."""
    from importlib.metadata import distribution

    present = distribution("dprepro")
    origin = json.loads(present.read_text("direct_url.json") or "{}")  # PEP 610
    if "url" not in origin:
        return f"dprepro[lab]=={present.version}"
    info = origin.get("vcs_info")
    address = f"{info['vcs']}+{origin['url']}@{info['commit_id']}" if info else origin["url"]
    return f"dprepro[lab] @ {address}"


def _begun(folder: Path, files: dict[str, bytes]) -> bool:
    """Return whether a folder has only ``files``, git's files and temporary files, as after a kill."""
    for path in folder.rglob("*"):
        name = path.relative_to(folder)
        if path.is_dir() or name.parts[0] == ".git" or is_temporary(name):
            continue
        if files.get(name.as_posix()) != path.read_bytes():
            return False
    return True
