"""Copies of the code, for tests that change it, and git in folders."""

import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]
CODE = ("dprepro", "pipeline", "stages")


def copy_code(folder: Path) -> None:
    """Copy the packages into ``folder``; `dprepro/pipeline` and `dprepro/stages` are links there, too."""
    for name in CODE:
        left_out = ("__pycache__", *(CODE[1:] if name == "dprepro" else ()))
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns(*left_out))
    for name in CODE[1:]:
        (folder / "dprepro" / name).symlink_to(Path("..") / name)


def git(*arguments: str, folder: Path = Path()) -> str:
    """What git says, of a made-up author."""
    line = ["git", "-c", "user.name=test", "-c", "user.email=test@example.org", *arguments]
    return subprocess.run(line, cwd=folder, check=True, capture_output=True, text=True).stdout


def commit(folder: Path) -> None:
    """Commit all that is in a checkout."""
    git("add", "--all", folder=folder)
    git("commit", "--quiet", "--message", "test", folder=folder)
