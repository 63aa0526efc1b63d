"""Entries of dvc.lock for results that DVC has not computed itself."""

import hashlib
import importlib.util
import json
import subprocess
import sys
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from dprepro.errors import UserError
from dprepro.pipeline.data.prepared import PREPARED
from dprepro.pipeline.identity import entries
from dprepro.pipeline.params import Settings, load
from dprepro.pipeline.params.documents import read_yaml
from dprepro.pipeline.results import records
from dprepro.pipeline.results.weights import RUNS, lacking

STAGES = Path("dvc.yaml")
LOCK = Path("dvc.lock")
EMPTY = "d751713988987e9331980363e24189ce.dir"  # DVC's hash of an empty folder


def available() -> bool:
    """Return whether DVC and `dvc.yaml` are here; training on another machine needs neither."""
    return STAGES.exists() and importlib.util.find_spec("dvc") is not None


def stages_of(row: str) -> tuple[str, ...]:
    """DVC's stages of a row, without its audit."""
    return tuple(f"{stage}@{row}" for stage in ("train", "evaluate", "ledger"))


def sign(settings: Settings, stages: Sequence[str]) -> frozenset[str]:
    """Sign ``stages``: have DVC enter the present files into its lock, so that it doesn't run them again.

    A row's stages are signed only if its data and all its recorded weights are here: the lock never points to
    fewer files than it did, and DVC makes what is missing.

    Return the signed stages.

    Raises:
        UserError: DVC fails; the message has the reason.
    """
    if not available():
        return frozenset()
    entries.write(settings)
    complete = [stage for stage in stages if _is_whole(stage, settings)]
    if complete:
        dvc("commit", "--force", *complete)
    return frozenset(complete)


def _is_whole(stage: str, settings: Settings) -> bool:
    """Return whether the data, weights and records of a row's stage are here."""
    kind, _, key = stage.partition("@")
    if (row := settings.rows.get(key)) is None:
        return False
    made = {"evaluate": records.evaluation_path(key), "ledger": records.ledger_path(key)}
    if kind in made and not made[kind].exists():
        return False
    return kind == "ledger" or not (_partial(RUNS / key) or not (PREPARED / row.data).exists())


def _partial(folder: Path) -> bool:
    """Return whether weights of a row's recorded trainings are absent from its folder ``runs/ROW``."""
    run = records.read_run(folder.name)
    return run is None or bool(lacking(run))


def enter_missing() -> None:
    """Enter stages of `dvc.yaml` that never ran into the lock, without hashes of what they would make.

    `dvc repro` runs them, `dvc repro --allow-missing` lets their results be missing.
    """
    from dvc.repo import Repo

    with Repo() as repo, repo.lock:
        stages = repo.stage.load_file(STAGES.name)
        parts = [part for stage in stages for part in (*stage.deps, *stage.outs)]
        known = {part.fs_path: part for part in parts if part.hash_info}
        never = [
            stage
            for stage in stages
            if not (stage.always_changed or any(out.hash_info or out.exists for out in stage.outs))
        ]
        for stage in never:
            stage.save(allow_missing=True, run_cache=False)
            for part in (*stage.deps, *stage.outs):
                if not part.exists and (same := known.get(part.fs_path)):  # others read or made it elsewhere
                    part.hash_info, part.meta = same.hash_info, same.meta
        for stage in never[:1]:
            stage.dvcfile.dump_stages(never, update_pipeline=False)


class Lock:
    """Contents of the lock, read once."""

    def __init__(self) -> None:
        """Read the lock; without one, the contents are empty.

        Raises:
            UserError: the file is no lock of DVC.
        """
        try:
            content = (read_yaml(LOCK) or {}).get("stages") if LOCK.exists() else None
            self.stages = TypeAdapter(dict[str, _Stage]).validate_python(content or {})
        except (AttributeError, ValidationError) as problem:
            raise UserError(f"{LOCK}: not as DVC writes it; `git checkout {LOCK}`") from problem
        name = entries.PATH.as_posix()
        # digest in `reports/identity.json` when the stage was signed, by stage
        self.digests: dict[str, str] = {
            stage: digest
            for stage, entry in self.stages.items()
            for digest in entry.params.get(name, {}).values()
        }

    def holds(self, stage: str, digest: str, paths: Sequence[Path]) -> bool:
        """Return whether the lock has ``stage`` with this digest and the present contents of ``paths``."""
        if self.digests.get(stage) != digest:
            return False
        signed = {out.path: out.md5 for out in self.stages[stage].outs}
        return all(path.exists() and signed.get(path.as_posix()) == _md5(path) for path in paths)

    def signs(self, stage: str) -> bool:
        """Return whether the lock has the contents of all records that ``stage`` writes."""
        outs = self.stages[stage].outs if stage in self.stages else []
        carried = [out for out in outs if Path(out.path).is_relative_to("reports")]
        return bool(carried) and all(out.md5 for out in carried)

    def read_another(self, stage: str, path: Path) -> bool:
        """Return whether, by the lock, ``stage`` read another content of ``path`` than the present one."""
        read = {dep.path: dep.md5 for dep in self.stages[stage].deps} if stage in self.stages else {}
        md5 = read.get(path.as_posix())
        return md5 is not None and path.exists() and _md5(path) != md5

    def changed(self, keys: Collection[str] = ()) -> Iterator[tuple[Path, str]]:
        """Outputs that differ from the lock, as pairs of path and stage.

        An output whose name isn't the key of its stage also differs: it can't be this stage's. Data, weights
        and empty folders may be absent, because git doesn't have them. ``keys``: keys of stages; empty: all.
        """
        for stage, entry in self.stages.items():
            key = stage.partition("@")[2]
            for signed in entry.outs if not keys or key in keys else ():
                path = Path(signed.path)
                present, carried = (
                    path.exists(),
                    path.is_relative_to("reports") and signed.md5 not in (None, EMPTY),
                )
                if path.parent == RUNS and _partial(path):  # each file has a digest in the record
                    continue
                if (key and key not in (path.name, path.stem)) or (
                    signed.md5 not in (None, _md5(path)) if present else carried
                ):
                    yield path, stage


class _Output(BaseModel):
    """Output or dependency of a stage in the lock."""

    path: str
    md5: str | None = None


class _Stage(BaseModel):
    """Stage in the lock."""

    params: dict[str, dict[str, Any]] = Field(default_factory=dict)
    deps: list[_Output] = Field(default_factory=list)
    outs: list[_Output] = Field(default_factory=list)


def _md5(path: Path) -> str:
    """DVC's hash of a file, or of a folder: the hash of the list of its files with their hashes."""
    if not path.is_dir():
        return hashlib.md5(path.read_bytes()).hexdigest()
    files = sorted(each for each in path.rglob("*") if each.is_file())
    listed = [{"md5": _md5(each), "relpath": each.relative_to(path).as_posix()} for each in files]
    return f"{hashlib.md5(json.dumps(listed, sort_keys=True).encode()).hexdigest()}.dir"


def dvc(*arguments: str) -> str:
    """Output of a DVC command.

    Raises:
        UserError: the command failed; the message has the last line of its output.
    """
    # as a module of this Python, because `dvc` may not be on the PATH
    command = [sys.executable, "-m", "dvc", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace")
    if done.returncode:
        reason = (done.stderr.strip() or done.stdout.strip() or "no reason given").splitlines()[-1]
        raise UserError(f"dvc {' '.join(arguments)}: {reason}")
    return done.stdout


if __name__ == "__main__":
    entries.write(load())
    dvc("commit", "--force", "identity")
    enter_missing()
