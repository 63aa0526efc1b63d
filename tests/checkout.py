"""Copies of the code, for tests that change it."""

import shutil
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
