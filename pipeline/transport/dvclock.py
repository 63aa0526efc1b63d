"""Having DVC sign results that it has not made itself."""

import hashlib
import importlib.util
import json
import subprocess
import sys
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from functools import cached_property
from io import StringIO
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field, TypeAdapter, ValidationError
from ruamel.yaml import YAML

from pipeline.data.prepared import PREPARED
from pipeline.errors import UserError, shown
from pipeline.files import write_text
from pipeline.identity import entries
from pipeline.params import Settings
from pipeline.params.documents import read_yaml
from pipeline.results import records
from pipeline.results.weights import RUNS

STAGES = Path("dvc.yaml")
LOCK = Path("dvc.lock")
STAGES_OF_A_ROW = ("train", "evaluate", "ledger")


def available() -> bool:
    """Whether there is a DVC here, and stages for it. Training on another machine needs neither."""
    return STAGES.exists() and importlib.util.find_spec("dvc") is not None


def sign(settings: Settings, rows: Sequence[str], stages: Sequence[str] = ()) -> bool:
    """Have DVC take what lies here as the results of ``rows``, so that it doesn't train them again.

    Where the data are here DVC does it itself, and keeps the weights. It refuses without them; then the
    entries of its lock are written as it would write them. False: there is no DVC pipeline here.
    ``stages`` are others to sign, of which all that they read is here.

    Raises:
        UserError: DVC can't; the last line it printed says why.
    """
    if not available():
        return False
    entries.write(settings)
    here = [row for row in rows if (PREPARED / settings.rows[row].data / "manifest.json").exists()]
    here = [row for row in here if (RUNS / row).exists()]
    sign_stages([*stages, *(f"{stage}@{row}" for row in here for stage in STAGES_OF_A_ROW)])
    if rest := [row for row in rows if row not in here]:
        lock, digests = _read(), entries.entries(settings)
        for row in rest:
            lock["stages"] |= row_entries(settings, row, digests, lock["stages"])
        _write(lock)
    return True


def sign_stages(names: Sequence[str]) -> None:
    """Have DVC take what lies here as the results of stages, and keep what it keeps of them, all at once.

    As `dvc commit --force` of each, but the lock is written once, and whole or not at all: DVC writes it
    anew for every stage, which takes seconds each, and a kill leaves half of it.

    Raises:
        UserError: DVC can't; the line says why.
    """
    if not names:
        return
    from dvc.dvcfile import load_file
    from dvc.exceptions import DvcException
    from dvc.repo import Repo
    from dvc.stage.serialize import to_lockfile

    try:
        with Repo() as repo, repo.lock:
            declared = load_file(repo, STAGES.name).stages
            # the demo has no audits
            stages = [declared[name] for name in names if name in declared]
            for stage in stages:
                stage.save()
                stage.commit()
            lock = _read()
            for stage in stages:
                lock["stages"] |= to_lockfile(stage)
            _write(lock)
    except DvcException as problem:
        raise UserError(f"dvc.lock: not signed: {shown(str(problem))}") from problem


class Signed:
    """What the lock holds, read once."""

    def __init__(self) -> None:
        """Read it; nothing is held where there is none.

        Raises:
            UserError: it is no lock of DVC's.
        """
        self.stages = _stages(read_yaml(LOCK)) if LOCK.exists() else {}

    @cached_property
    def digests(self) -> dict[str, str]:
        """Of each stage that of `reports/identity.json`."""
        name = entries.PATH.as_posix()
        return {
            stage: digest
            for stage, entry in self.stages.items()
            for digest in entry.params.get(name, {}).values()
        }

    def holds(self, stage: str, digest: str, paths: Sequence[Path]) -> bool:
        """Whether it holds a stage with this digest, and with these files of its outputs as they are here."""
        if stage not in self.stages or self.digests.get(stage) != digest:
            return False
        signed = {out.path: out.md5 for out in self.stages[stage].outs}
        return all(path.exists() and signed.get(path.as_posix()) == _md5(path) for path in paths)


def changed() -> Iterator[tuple[Path, str]]:
    """What lies here and is not what DVC signed: each output's path, and the stage that made it.

    An output that has not its stage's own key for a name is another stage's, or nobody's.
    """
    if not LOCK.exists():
        return
    for stage, entry in _stages(read_yaml(LOCK)).items():
        for signed in entry.outs:
            path, key = Path(signed.path), stage.partition("@")[2]
            if (key and key not in (path.name, path.stem)) or (
                path.exists() and signed.md5 not in (None, _md5(path))
            ):
                yield path, stage


class _Signed(BaseModel):
    """What is read of an output in the lock."""

    path: str
    md5: str | None = None


class _Stage(BaseModel):
    """What is read of a stage in the lock."""

    params: dict[str, dict[str, Any]] = Field(default_factory=dict)
    outs: list[_Signed] = Field(default_factory=list)


def _stages(lock: Any) -> dict[str, _Stage]:
    """The lock's entries.

    Raises:
        UserError: it is no lock of DVC's.
    """
    try:
        return TypeAdapter(dict[str, _Stage]).validate_python((lock or {}).get("stages") or {})
    except (AttributeError, ValidationError) as problem:
        raise UserError(f"{LOCK}: not as DVC writes it; `git checkout {LOCK}`") from problem


def row_entries(
    settings: Settings, row: str, digests: dict[str, Any], signed: dict[str, Any]
) -> dict[str, Any]:
    """The lock's entries of a row's stages, for what lies here; ``signed``: those that the lock has.

    ``digests`` are those of `reports/identity.json`.
    Data and weights that aren't here keep the hash that they were signed with; weights that nobody kept are
    an empty folder's.
    """
    data = PREPARED / settings.rows[row].data
    maker = f"{settings.stage_of(data.name)}@{data.name}"
    prepared = _signed(signed, maker, "outs", data) or _signed(signed, f"train@{row}", "deps", data)
    weights = None if (RUNS / row).exists() else _signed(signed, f"train@{row}", "outs", RUNS / row)
    folders = [{"path": data.as_posix(), "hash": "md5", **(prepared or {})}]
    kept = {"path": (RUNS / row).as_posix(), "hash": "md5", **(weights or _folder(RUNS / row))}
    run, history = _file(records.run_path(row)), _file(records.history_path(row))
    measured, ledgers = _file(records.evaluation_path(row)), _file(records.ledger_path(row))
    parts: dict[str, tuple[list[dict[str, Any]], list[dict[str, Any]]]] = {
        "train": (folders, [history, run, kept]),
        "evaluate": ([*folders, run, kept], [measured]),
        "ledger": ([history, run], [ledgers]),
    }
    return {
        f"{stage}@{row}": {
            "cmd": f"dprepro {stage} {row}",
            "deps": deps,
            "params": {entries.PATH.as_posix(): {f"{stage}.{row}": digests[stage][row]}},
            "outs": outs,
        }
        for stage, (deps, outs) in parts.items()
    }


def _read() -> dict[str, Any]:
    if not LOCK.exists():
        return {"schema": "2.0", "stages": {}}
    _stages(read_yaml(LOCK))
    lock: dict[str, Any] = _yaml().load(LOCK.read_text())
    lock.setdefault("stages", {})
    return lock


def _yaml() -> YAML:
    # As DVC writes it, so that taking over an entry changes no other line.
    yaml = YAML()
    yaml.default_flow_style = False
    yaml.Representer.add_representer(OrderedDict, yaml.Representer.represent_dict)
    return yaml


def _write(lock: dict[str, Any]) -> None:
    text = StringIO()
    _yaml().dump(lock, text)
    write_text(LOCK, text.getvalue())


def _signed(stages: dict[str, Any], stage: str, kind: str, path: Path) -> dict[str, Any] | None:
    """Hash and size under which a stage holds a path, or None."""
    for item in stages.get(stage, {}).get(kind, []):
        if item["path"] == path.as_posix():
            return {name: item[name] for name in ("md5", "size", "nfiles") if name in item}
    return None


def _file(path: Path) -> dict[str, Any]:
    content = path.read_bytes()
    digest = hashlib.md5(content).hexdigest()
    return {"path": path.as_posix(), "hash": "md5", "md5": digest, "size": len(content)}


def _folder(path: Path) -> dict[str, Any]:
    """DVC's hash of a folder: that of a list of its files with theirs."""
    files = sorted(each for each in path.rglob("*") if each.is_file())
    listed = [{"md5": _file(each)["md5"], "relpath": each.relative_to(path).as_posix()} for each in files]
    digest = hashlib.md5(json.dumps(listed, sort_keys=True).encode()).hexdigest()
    return {"md5": f"{digest}.dir", "size": sum(each.stat().st_size for each in files), "nfiles": len(files)}


def _md5(path: Path) -> str:
    """DVC's hash of a file or a folder."""
    return str((_folder if path.is_dir() else _file)(path)["md5"])


def dvc(*arguments: str) -> str:
    """What a command of DVC prints.

    Raises:
        UserError: it failed; the last line it printed says why.
    """
    # As a module of this Python: `dvc` need not be on the PATH.
    done = subprocess.run([sys.executable, "-m", "dvc", *arguments], capture_output=True, text=True)
    if done.returncode:
        reason = (done.stderr.strip() or done.stdout.strip() or "no reason given").splitlines()[-1]
        raise UserError(f"dvc {' '.join(arguments)}: {reason}")
    return done.stdout
