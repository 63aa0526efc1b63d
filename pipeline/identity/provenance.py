"""Provenance of a record: the commit and the versions of packages."""

import platform
import subprocess
from importlib import metadata
from pathlib import Path

from dprepro.pipeline.params import PARAMS

PIPELINE = Path(__file__).resolve().parents[1]  # `dprepro/pipeline` is a link to it in a checkout
CODE = ("dprepro", "pipeline", "stages")
PACKAGES = ("dprepro", "torch", "torchvision", "numpy", "opacus", "dp-accounting")


def revision() -> tuple[str | None, bool | None]:
    """Last commit that changed code or settings in this checkout, and whether code has uncommitted changes.

    Commits of results don't count: they may be lost, if a training makes them in a clone that is deleted.
    Uncommitted changes of other files don't count: settings and data have digests, and every run writes
    results. Both values are None without git and outside a checkout (an unpacked archive, an installed
    package).
    """
    # an installed package can lie inside another checkout (`.venv` in a project); the prefix is empty only at
    # the top of a checkout
    prefix = _git("rev-parse", "--show-prefix")
    commit = _git("log", "-1", "--format=%H", "--", *CODE, str(PARAMS))
    if prefix is None or prefix.strip() or not commit:
        return None, None
    changes = _git("status", "--porcelain", "--", *CODE)
    return commit.strip(), None if changes is None else bool(changes)


def is_checkout_here() -> bool:
    """Return whether the working folder is the checkout of the code, whose commits runs record.

    In a laboratory it isn't: no run records a commit of the laboratory's params.yaml.
    """
    return Path().resolve() == PIPELINE.parent.resolve()


def is_lost(revision: str) -> bool:
    """Return whether this checkout has its full history but lacks a commit; False if git doesn't answer."""
    if _git("cat-file", "-e", f"{revision}^{{commit}}") is not None:
        return False
    return (_git("rev-parse", "--is-shallow-repository") or "").strip() == "false"


def committed_text(path: Path, commit: str) -> str | None:
    """Text of a file below the working folder at a commit; None if git doesn't have the file."""
    return _git("show", f"{commit}:./{path.as_posix()}", folder=Path())


def last_commit(revision: str, time: float) -> str | None:
    """Last commit in the history of ``revision`` until a Unix time; None if there is none."""
    return (_git("rev-list", "-1", f"--before={int(time)}", revision) or "").strip() or None


def versions() -> dict[str, str]:
    """Versions of Python and of the installed packages that compute results.

    An installed `dprepro` has no `revision`, so its version identifies the code.
    """
    installed = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            installed[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return installed


def _git(*arguments: str, folder: Path | None = None) -> str | None:
    """Output of a git command in ``folder`` (default: the checkout of the code); None if it fails."""
    # without optional locks: rows that end together must not block each other or the user's own git
    command = ["git", "-C", str(folder or PIPELINE.parent), "--no-optional-locks", *arguments]
    try:
        return subprocess.run(command, capture_output=True, text=True, errors="replace", check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None
