"""Compares what two versions of the code make of a row: the first steps of every kind of replica it has.

The version that made a row's numbers is the commit that its run names, checked out beside this one; both take
the same seeded steps on the same machine, on the row's own data. *Same bits*: every tensor of every state and
every metric is equal. *Same to rounding*, for code that was only made faster: one step from each of several
common states ends within 1e-5, relative, in every tensor. Nothing else counts.
"""

import json
import os
import platform
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from ruamel.yaml import YAML
from torch import Tensor

from pipeline.data import prepared
from pipeline.data.prepared import PREPARED
from pipeline.errors import UserError
from pipeline.identity import equivalences, first_steps
from pipeline.identity.code import measure_code, train_code
from pipeline.identity.equivalences import DIFFERENT, SAME_BITS, TO_ROUNDING, Finding, Findings
from pipeline.identity.syntax import PACKAGE
from pipeline.methods.registry import build_net
from pipeline.params import Settings
from pipeline.pretrained.joining import join
from pipeline.pretrained.starts import join_start
from pipeline.results import records

STEPS = 3
ROUNDING = 1e-5
Made = tuple[str, str | None]  # the code that trained, and that which measured, if any did


@dataclass(frozen=True)
class Asked:
    """A row's numbers, and the commit whose code made them."""

    row: str
    code: str  # that trained
    measured_by: str | None  # the code that measured; None: nobody did
    revision: str


def unproven(settings: Settings, keys: Sequence[str], root: Path = Path()) -> Iterator[Asked | str]:
    """What of the rows was made by code that differs from that here; a line of text where no commit has it.

    A number is asked about once, however many replicas share its code. Its own commit may have stayed on
    another machine: any commit that is here serves, of which some row says that it has the same code, or code
    that is proven to make the same.
    """
    findings = equivalences.load()
    commits = {
        made: commit
        for row in settings.rows
        for made, commit in _made(row, root)
        if commit and _is_here(commit)
    }
    for key in keys:
        row = settings.row(key)
        canonical = partial(_canonical, findings, key)
        name = row.model.name
        now = canonical((train_code(row.method, name).digest, measure_code(row.method, name).digest))
        for made in dict.fromkeys(made for made, _ in _made(key, root)):
            oldest = canonical(made)
            if all(code in (None, here) for code, here in zip(oldest, now, strict=True)):
                continue
            same = (one for one in commits if canonical(one) == oldest)
            if serving := made if made in commits else next(same, None):
                yield Asked(key, *serving, commits[serving])
            else:
                yield f"{key}: made by code that no commit here has"


def _canonical(findings: Findings, key: str, made: Made) -> Made:
    """The oldest code that is proven to train and to measure as ``made``."""
    code, measured_by = made
    measured = None if measured_by is None else findings.canonical("evaluate", key, measured_by)
    return findings.canonical("train", key, code), measured


def _made(key: str, root: Path) -> Iterator[tuple[Made, str | None]]:
    """Of each replica of a row: the code that trained and that measured it, and the commit that has both."""
    run, measured = records.read_run(key, root), records.read_evaluation(key, root)
    by = {(one.level, one.seed): one.code for one in measured.replicas} if measured else {}
    if run is None:
        return
    for one in run.replicas:
        origin = run.origin(one)
        yield (origin.code, by.get((one.level, one.seed))), None if origin.dirty else origin.revision


@cache
def _is_here(commit: str) -> bool:
    git = ["git", "-C", str(PACKAGE.parent), "cat-file", "-e", f"{commit}^{{commit}}"]
    return subprocess.run(git, capture_output=True).returncode == 0


def compare(settings: Settings, asked: Sequence[Asked], root: Path = Path()) -> list[Finding]:
    """Run what is asked for by the code of its commit and by that here, and tell what they had in common.

    Raises:
        UserError: a commit is not here; a row's data are not prepared.
    """
    for name in {_at_hand(settings, one.row, root) for one in asked}:
        prepared.load(name, root)
    by_revision: dict[str, list[Asked]] = defaultdict(list)
    for one in asked:
        by_revision[one.revision].append(one)
    found: list[Finding] = []
    with tempfile.TemporaryDirectory(prefix="dprepro-") as place:
        for revision, some in by_revision.items():
            with _checkout(revision, Path(place)) as checkout:
                found += _compared(settings, some, checkout, Path(place), root.resolve())
    return found


def _compared(
    settings: Settings, asked: list[Asked], checkout: Path, place: Path, root: Path
) -> Iterator[Finding]:
    jobs = {row: _job(settings, row, place, root) for row in dict.fromkeys(one.row for one in asked)}
    before = _steps(checkout, list(jobs.values()), "before", None)
    after = _steps(PACKAGE.parent, list(jobs.values()), "after", None)
    unequal = [
        key for key in jobs if "error" not in before[key] and "error" not in after[key]
        and not _same_bits(before[key], after[key])
    ]  # fmt: skip
    common = _steps(PACKAGE.parent, [jobs[key] for key in unequal], "common", "before")
    for one in asked:
        yield from _findings(settings, one, before[one.row], after[one.row], common.get(one.row))


def _findings(settings: Settings, asked: Asked, before: Any, after: Any, common: Any) -> Iterator[Finding]:
    row = settings.row(asked.row)
    bits = common is None
    error = before.get("error") or after.get("error") or (common or {}).get("error")
    if error:
        weights, why = DIFFERENT, f"could not be run: {error}"
    elif bits:
        weights, why = SAME_BITS, ""
    else:
        weights, why = _to_rounding(before, common)
    apart = 0.0 if bits or error else max(gap for *_, gap in _gaps(before, common))
    classes = after if bits else common
    same = not error and all(
        one["classes"].numel() and torch.equal(one["classes"], classes[name]["classes"])
        for name, one in before.items()
    )
    kinds: list[tuple[Any, str, str, Any, str]] = [
        ("train", asked.code, train_code(row.method, row.model.name).digest, weights, why)
    ]
    if asked.measured_by is not None:
        told = (SAME_BITS, "") if same else (DIFFERENT, why or "predicts other classes")
        kinds.append(("evaluate", asked.measured_by, measure_code(row.method, row.model.name).digest, *told))
    for kind, code, now, verdict, reason in kinds:
        yield Finding(
            row=asked.row, kind=kind, before=code, after=now, revision=asked.revision, found=verdict,
            why=reason, difference=apart, steps=STEPS, replicas=0 if error else len(before),
            machine=f"{platform.machine()}, torch {torch.__version__}", date=date.today().isoformat(),
        )  # fmt: skip


def _same_bits(before: Any, after: Any) -> bool:
    if before.keys() != after.keys():
        return False
    pairs = [
        pair
        for name, one in before.items()
        for part in ("states", "metrics")
        for pair in zip(one[part], after[name][part], strict=True)
    ]
    return all(_equal(*pair) for pair in pairs)


def _equal(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(
        torch.equal(torch.nan_to_num(value), torch.nan_to_num(other[name])) for name, value in one.items()
    )


def _to_rounding(before: Any, common: Any) -> tuple[Any, str]:
    if before.keys() != common.keys():
        return DIFFERENT, "other replicas"
    for level, step, name, gap in _gaps(before, common):
        if not gap <= ROUNDING:
            return DIFFERENT, f"{name} at {level} differs by {gap:.1e} after one step from step {step}"
    return TO_ROUNDING, ""


def _gaps(before: Any, common: Any) -> Iterator[tuple[str, int, str, float]]:
    """Level, step, tensor, and how far the two ends of one step from a common state lie apart."""
    for (level, seed), one in before.items():
        other = common[level, seed]
        for name, value in one["states"][0].items():
            yield level, 0, f"the start's {name}", _gap(value, other["states"][0][name])
        for step in range(STEPS):
            ends = (one["states"][step + 1], other["states"][step + 1])
            if ends[0].keys() != ends[1].keys():
                yield level, step, "the state's names", float("inf")
                continue
            for name in ends[0]:
                yield level, step, name, _gap(ends[0][name], ends[1][name])
            losses = (each["metrics"][step]["train_loss"] for each in (one, other))
            yield level, step, "train_loss", _gap(*losses)


def _gap(one: Tensor, other: Tensor) -> float:
    """The distance between two tensors over the longer one's norm."""
    first, second = one.double(), other.double()
    size = max(first.norm().item(), second.norm().item())
    gap = (first - second).norm().item()
    if gap == 0:
        return 0.0
    return gap / size if gap == gap and size > 0 else float("inf")


def _job(settings: Settings, key: str, place: Path, root: Path) -> dict[str, Any]:
    """A folder with the row, seeded, its data, and nothing else that a version of any age must understand."""
    folder = place / key
    if not folder.exists():
        (folder / PREPARED).mkdir(parents=True)
        for path in (root / PREPARED).iterdir():
            (folder / PREPARED / path.name).symlink_to(path)
        _stand_in(settings, key, folder)
    names = ("raw", "own", "data", "starts", "relevances", "rows")
    parts: dict[str, dict[str, Any]] = {name: {} for name in names}
    _collect(settings, key, parts)
    with (folder / "params.yaml").open("w", encoding="utf-8") as file:
        YAML(typ="safe", pure=True).dump(
            {name: part for name, part in parts.items() if part or name == "raw"}, file
        )
    return {"folder": str(folder), "row": key, "steps": STEPS}


def _at_hand(settings: Settings, key: str, root: Path) -> str:
    """The row's prepared data; where they are joined with what isn't here, those that they are made of."""
    name = settings.rows[key].data
    joined = settings.derived.get(name)
    return joined.data if joined and not (root / PREPARED / name).exists() else name


def _stand_in(settings: Settings, key: str, folder: Path) -> None:
    """For weights or relevances that aren't here any others: both take the same steps, which are compared."""
    name, there = settings.rows[key].data, _at_hand(settings, key, folder)
    if there == name:
        return
    source = prepared.load(there, folder)
    about: dict[str, Any] = {"row": "none", "data": "none", "config": "none", "test_examples_seen": 0}
    if name in settings.starts:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            model = settings.rows[settings.starts[name].row].model
            weights = build_net(model, source.input_shape, source.classes).state_dict()
        join_start(name, settings, source, weights, about, folder)
        return
    mean = np.random.default_rng(0).random(source.input_shape)
    public = settings.relevances[name].of == "public"
    about |= {"examples": len(source.splits["train"]), "of": "public" if public else "train"}
    join(name, source, "relevance", {"mean": mean}, about | {"informed": not public}, folder)


def _collect(settings: Settings, key: str, parts: dict[str, dict[str, Any]]) -> None:
    row = settings.row(key)
    kept = ("paper", "table", "label", "data", "model", "method", "axis", "settings")
    said = row.model_dump(mode="json", exclude_unset=True)
    parts["rows"][key] = {name: said[name] for name in kept if said.get(name) is not None} | {
        "levels": [{name: value for name, value in level.items() if name != "seeds"} for level in row.levels],
        # two where there are several: those that share a step are padded to the longest sample
        "seeds": min(2, row.seeds),
        "reproducible": True,
    }
    joined = settings.derived.get(row.data)
    name = joined.data if joined else row.data
    data = settings.data[name]
    parts["data"][name] = data.model_dump(mode="json", exclude_unset=True)
    for raw in (data.raw, data.public.raw):
        kind = "own" if raw in settings.own else "raw"
        parts[kind][raw] = settings.raw[raw].model_dump(mode="json", exclude_unset=True)
    if joined:
        kind = "starts" if row.data in settings.starts else "relevances"
        parts[kind][row.data] = joined.model_dump(mode="json", exclude_unset=True)
        _collect(settings, joined.row, parts)


def _steps(checkout: Path, jobs: list[dict[str, Any]], name: str, states: str | None) -> dict[str, Any]:
    """What the steps of all jobs made by the code of ``checkout``."""
    if not jobs:
        return {}
    told = [
        {
            **job,
            "out": f"{job['folder']}/{name}.pt",
            "states": f"{job['folder']}/{states}.pt" if states else None,
        }
        for job in jobs
    ]
    listed = Path(jobs[0]["folder"]).parent / f"{name}.json"
    listed.write_text(json.dumps(told))
    environment = {**os.environ, "PYTHONPATH": str(checkout), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, first_steps.__file__, str(listed)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise UserError(f"{checkout}: {(done.stderr.strip() or 'failed').splitlines()[-1]}")
    return {job["row"]: torch.load(job["out"], weights_only=True) for job in told}


@contextmanager
def _checkout(revision: str, place: Path) -> Iterator[Path]:
    """The code of a commit, for as long as the block runs."""
    folder = place / f"at-{revision[:12]}"
    git = ["git", "-C", str(PACKAGE.parent), "worktree"]
    added = subprocess.run([*git, "add", "--detach", str(folder), revision], capture_output=True, text=True)
    if added.returncode:
        raise UserError(f"commit {revision}: {(added.stderr.strip() or 'not here').splitlines()[-1]}")
    try:
        yield folder
    finally:
        subprocess.run([*git, "remove", "--force", str(folder)], capture_output=True)
