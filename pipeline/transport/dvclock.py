"""What DVC has signed: reading its lock, having it sign, and taking over what another checkout signed."""

import hashlib
import importlib.util
import json
import subprocess
import sys
from io import StringIO
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from pipeline.errors import UserError
from pipeline.files import write_text

STAGES = Path("dvc.yaml")
LOCK = Path("dvc.lock")


def available() -> bool:
    """Whether there is a DVC here, and stages for it. Training on another machine needs neither."""
    return STAGES.exists() and importlib.util.find_spec("dvc") is not None


def changed() -> set[str]:
    """Stages of this folder's pipeline whose inputs or outputs are not those that were signed.

    Raises:
        UserError: DVC can't tell.
    """
    # Named, because without a target DVC answers for every pipeline below this folder.
    return set(_status(STAGES.name))


def vouched(stages: list[str]) -> str:
    """The lock's entries of ``stages``, as YAML: JSON has no infinity.

    Empty when DVC isn't here or finds one of them changed since.
    """
    entries = _read()["stages"]
    if not available() or not all(stage in entries for stage in stages) or _status(*stages):
        return ""
    text = StringIO()
    _yaml().dump({stage: entries[stage] for stage in stages}, text)
    return text.getvalue()


def commit(stages: list[str]) -> None:
    """Have DVC sign what lies in the workspace as the results of ``stages``.

    Raises:
        UserError: it can't; the last line it printed says why.
    """
    _dvc("commit", "--force", *stages)


def output(stage: str, path: Path) -> str | None:
    """The hash under which this checkout's lock holds an output, or None."""
    return _hash(_read()["stages"], stage, "outs", path)


def dependency(entries: str, stage: str, path: Path) -> str | None:
    """The hash of the dependency with which a stage was signed elsewhere, or None."""
    return _hash(_yaml().load(entries) or {}, stage, "deps", path)


def take_over(entries: str, edited: Path) -> None:
    """Put another checkout's entries into the lock; ``edited`` is an output whose bytes changed since."""
    content = edited.read_bytes()
    lock = _read()
    for stage, entry in (_yaml().load(entries) or {}).items():
        for out in entry.get("outs", []):
            if out["path"] == edited.as_posix():
                out["md5"], out["size"] = hashlib.md5(content).hexdigest(), len(content)
        lock["stages"][stage] = entry
    text = StringIO()
    _yaml().dump(lock, text)
    write_text(LOCK, text.getvalue())


def _read() -> dict[str, Any]:
    if not LOCK.exists():
        return {"schema": "2.0", "stages": {}}
    lock: dict[str, Any] = _yaml().load(LOCK.read_text())
    return lock


def _yaml() -> YAML:
    # As DVC writes it, so that taking over an entry changes no other line.
    yaml = YAML()
    yaml.default_flow_style = False
    yaml.width = 2**16
    return yaml


def _hash(entries: dict[str, Any], stage: str, kind: str, path: Path) -> str | None:
    for item in entries.get(stage, {}).get(kind, []):
        if item["path"] == path.as_posix():
            value: str | None = item.get("md5")
            return value
    return None


def _status(*targets: str) -> dict[str, Any]:
    status: dict[str, Any] = json.loads(_dvc("status", "--json", *targets))
    return status


def _dvc(*arguments: str) -> str:
    # As a module of this Python: `dvc` need not be on the PATH.
    done = subprocess.run([sys.executable, "-m", "dvc", *arguments], capture_output=True, text=True)
    if done.returncode:
        reason = (done.stderr.strip() or done.stdout.strip() or "no reason given").splitlines()[-1]
        raise UserError(f"dvc {' '.join(arguments)}: {reason}")
    return done.stdout
