"""What DVC has signed: reading its lock, having it sign, and taking over what another checkout signed."""

import hashlib
import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from pipeline.errors import UserError, writing

STAGES = Path("dvc.yaml")
LOCK = Path("dvc.lock")


def available() -> bool:
    """Whether there is a DVC here, and stages for it. Training on another machine needs neither."""
    return STAGES.exists() and importlib.util.find_spec("dvc") is not None


def vouched(stages: list[str]) -> dict[str, Any]:
    """The lock's entries of ``stages``; none when DVC isn't here or finds one of them changed since."""
    entries = _read()["stages"]
    if not available() or not all(stage in entries for stage in stages):
        return {}
    status = _dvc("status", "--json", *stages)
    if status.returncode or status.stdout.strip() != "{}":
        return {}
    return {stage: entries[stage] for stage in stages}


def commit(stages: list[str]) -> None:
    """Have DVC sign what lies in the workspace as the results of ``stages``.

    Raises:
        UserError: it can't; the last line it printed says why.
    """
    done = _dvc("commit", "--force", *stages)
    if done.returncode:
        reason = (done.stderr.strip() or done.stdout.strip() or "no reason given").splitlines()[-1]
        raise UserError(f"dvc commit {' '.join(stages)}: {reason}")


def output(stage: str, path: Path) -> str | None:
    """The hash under which this checkout's lock holds an output, or None."""
    return _hash(_read()["stages"].get(stage, {}), "outs", path)


def dependency(entry: dict[str, Any], path: Path) -> str | None:
    """The hash of the dependency with which a lock's entry was signed, or None."""
    return _hash(entry, "deps", path)


def take_over(entries: dict[str, Any], edited: Path) -> None:
    """Put another checkout's entries into the lock; ``edited`` is an output whose bytes changed since."""
    if not entries:
        return
    content = edited.read_bytes()
    for entry in entries.values():
        for out in entry.get("outs", []):
            if out["path"] == edited.as_posix():
                out["md5"], out["size"] = hashlib.md5(content).hexdigest(), len(content)
    lock = _read()
    lock["stages"].update(entries)
    with writing(LOCK):
        partial = LOCK.with_name(f".{LOCK.name}.partial")
        with partial.open("w") as file:
            _yaml().dump(lock, file)
        partial.replace(LOCK)


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


def _hash(entry: dict[str, Any], kind: str, path: Path) -> str | None:
    for item in entry.get(kind, []):
        if item["path"] == path.as_posix():
            value: str | None = item.get("md5")
            return value
    return None


def _dvc(*arguments: str) -> subprocess.CompletedProcess[str]:
    # As a module of this Python: `dvc` need not be on the PATH.
    return subprocess.run([sys.executable, "-m", "dvc", *arguments], capture_output=True, text=True)
