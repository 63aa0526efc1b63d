"""Provenance of a record: the commit and the versions of packages."""

import platform
import subprocess
from importlib import metadata
from pathlib import Path

from pipeline.params import PARAMS

PIPELINE = Path(__file__).parents[1]
CODE = ("pipeline", "stages")
PACKAGES = ("dprepro", "torch", "torchvision", "numpy", "opacus", "dp-accounting")


def revision() -> tuple[str | None, bool | None]:
    """The last commit of code or settings in the checkout this runs from, and whether code is uncommitted.

    Commits of results alone don't count: a clone that trains makes them, and may be thrown away. Neither do
    other uncommitted changes: settings and data have digests of their own, and every run writes results.
    Both are None outside a checkout (an unpacked archive, an installed package) and where git is missing.
    """
    # An installed package can lie inside somebody else's checkout (`.venv` in a project): the prefix, empty
    # only at the top of a checkout, tells the two apart.
    prefix = _git("rev-parse", "--show-prefix")
    commit = _git("log", "-1", "--format=%H", "--", *CODE, str(PARAMS))
    if prefix is None or prefix.strip() or not commit:
        return None, None
    changes = _git("status", "--porcelain", "--", *CODE)
    return commit.strip(), None if changes is None else bool(changes)


def is_lost(revision: str) -> bool:
    """Whether this checkout, with all its history, hasn't the commit; False where git can't tell."""
    if _git("cat-file", "-e", f"{revision}^{{commit}}") is not None:
        return False
    return (_git("rev-parse", "--is-shallow-repository") or "").strip() == "false"


def deleted_files(folder: Path) -> dict[Path, str]:
    """Files that git once had in ``folder`` and has no longer, each with the last commit that has it."""
    listed = _git(
        *("log", "--diff-filter=D", "--name-only", "--relative", "--format=:%H", "--", str(folder)),
        folder=Path(),
    )
    files: dict[Path, str] = {}
    for line in (listed or "").splitlines():
        if line.startswith(":"):
            commit = line[1:]
        elif line:
            files.setdefault(Path(line), f"{commit}^")  # the latest deletion comes first
    return files


def committed_text(path: Path, commit: str) -> str | None:
    """Text of a file below the working folder at a commit; None where git can't tell."""
    return _git("show", f"{commit}:./{path.as_posix()}", folder=Path())


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that compute; those not installed are left out.

    An installed `dprepro` has no `revision`, and is known by its version alone.
    """
    installed = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            installed[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return installed


def _git(*arguments: str, folder: Path | None = None) -> str | None:
    """What git prints, or None when it can't tell."""
    # Without optional locks, so that rows which end together don't stop each other or the user's own git.
    command = ["git", "-C", str(folder or PIPELINE.parent), "--no-optional-locks", *arguments]
    try:
        return subprocess.run(command, capture_output=True, text=True, errors="replace", check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None
