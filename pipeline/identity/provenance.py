"""Which code, at which commit, with which packages: what a record says of its own making."""

import platform
import subprocess
from importlib import metadata
from pathlib import Path

from pipeline.files import digest_files

PIPELINE = Path(__file__).parents[1]
# Sources behind every epsilon; the same that dvc.yaml lists under `account`, beside accounts.py.
ACCOUNTING = (
    "ledger.py",
    "privacy/accounting.py",
    "privacy/clt.py",
    "privacy/gaussian.py",
    "privacy/inclusion.py",
    "privacy/laplace.py",
    "privacy/renyi.py",
    "privacy/spending.py",
    "privacy/subsampling.py",
    "privacy/tan.py",
    "privacy/tradeoff.py",
)
# Sources behind every row's numbers, besides its own model and method; the same that dvc.yaml lists under
# `train` and `evaluate`. What reads settings and data is left out, because their values have digests of their
# own, and so is what shows or carries numbers: a message or a table may be mended, and another model added,
# without disowning every number there is.
ENGINE = (
    "checkpoints.py",
    "evaluation.py",
    "joined.py",
    "methods/augment.py",
    "methods/base.py",
    "methods/colour.py",
    "methods/layer_bounds.py",
    "methods/mini_sets.py",
    "methods/optimizers.py",
    "methods/parts.py",
    "methods/perturbed.py",
    "methods/recipes.py",
    "methods/registry.py",
    "methods/samples.py",
    "methods/sensitivities.py",
    "methods/sparsify.py",
    "methods/statistics.py",
    "methods/taylor.py",
    "methods/views.py",
    "models/normalization.py",
    *ACCOUNTING,
    "privacy/gradients.py",
    "privacy/mechanisms.py",
    "privacy/randomness.py",
    "relevance.py",
    "runs.py",
    "starts.py",
    "training.py",
)
PACKAGES = ("torch", "torchvision", "numpy", "opacus", "dp-accounting")


def code_digest(method: str, model: str) -> str:
    """Digest over the names and bytes of the sources that decide a row's numbers."""
    return digest_files(PIPELINE, sources(method, model))


def account_digest() -> str:
    """Digest over the names and bytes of the sources that decide an account's numbers."""
    return digest_files(PIPELINE, account_sources())


def account_sources() -> list[Path]:
    """The sources that decide an account's numbers."""
    return sorted(PIPELINE / name for name in ("accounts.py", *ACCOUNTING))


def sources(method: str, model: str) -> list[Path]:
    """The sources that decide the numbers of a row with this method and model."""
    return sorted(PIPELINE / name for name in (*ENGINE, f"methods/{method}.py", f"models/{model}.py"))


def revision() -> tuple[str | None, bool | None]:
    """Commit of the checkout this code runs from, and whether its code has uncommitted changes.

    Only code counts as a change: settings and data have digests of their own, and every run writes results.
    Both are None outside a checkout (an unpacked archive, an installed package) and where git is missing.
    """
    # An installed package can lie inside somebody else's checkout (`.venv` in a project): the prefix, empty
    # only at the top of a checkout, tells the two apart.
    place = _git("rev-parse", "--show-prefix", "HEAD")
    if place is None:
        return None, None
    prefix, commit = place.split("\n")[:2]
    if prefix:
        return None, None
    changes = _git("status", "--porcelain", "--", "pipeline", "stages")
    return commit, None if changes is None else bool(changes)


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that compute; those not installed are left out."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def _git(*arguments: str) -> str | None:
    """What git prints, or None when it can't tell."""
    # Without optional locks, so that rows which end together don't stop each other or the user's own git.
    command = ["git", "-C", str(PIPELINE.parent), "--no-optional-locks", *arguments]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None
