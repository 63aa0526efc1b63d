"""Rows to train, the reasons, and how long training takes."""

import json
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Literal

from pydantic import ValidationError

from pipeline.identity.provenance import committed_text, deleted_files
from pipeline.identity.standing import Standing
from pipeline.params import Row, Settings
from pipeline.results import records
from pipeline.results.schema import Run

NEVER = "never ran"
# Origin of an estimated time: the row's record, its last record in git, or rows of the same network and data
Source = Literal["record", "history", "similar"]
Kind = tuple[str, str, str, str]
GPU_DEVICES = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")  # of NVIDIA, AMD, and Windows' Linux


@dataclass(frozen=True)
class Planned:
    """A row of which some replicas would be trained."""

    row: str
    replicas: int  # to train
    kept: int  # that stand
    reasons: tuple[str, ...]  # why, of those that ran
    waits: bool  # for a GPU, and there is none here
    seconds: float | None = None  # estimate for so many replicas; None: nothing like it ran
    source: Source | None = None  # of the estimate


def plan(settings: Settings, gpu: bool) -> list[Planned]:
    """Rows to train: those that can be trained here first, the shortest of them first.

    Args:
        settings: all settings.
        gpu: whether there is one here.
    """
    runs = {key: run for key in settings.rows if (run := records.read_run(key))}
    planned = [each for key in settings.rows if (each := _row(settings, key, runs.get(key), gpu)).replicas]
    rates = _rates(settings, runs)
    never = [each.row for each in planned if not each.waits and each.row not in runs]
    earlier = _earlier(never) if never else {}
    timed = [each if each.waits else _timed(settings, each, runs, earlier, rates) for each in planned]
    return sorted(timed, key=lambda row: (row.waits, row.seconds is None, row.seconds or 0.0))


def lacks(settings: Settings, key: str) -> bool:
    """Whether replicas of a row would be trained."""
    return _row(settings, key, records.read_run(key), gpu=True).replicas > 0


def gpu_hours() -> dict[str, float]:
    """Hours of a GPU by row, by operations (`pipeline.cluster.costs`); empty where they aren't counted."""
    path = records.GPU_HOURS
    return dict(json.loads(path.read_bytes())) if path.exists() else {}


def gpu_here() -> bool:
    """Whether this machine has a GPU that torch can use."""
    if sys.platform == "linux" and not any(Path(device).exists() for device in GPU_DEVICES):
        return False  # without seconds of importing torch
    import torch

    return torch.cuda.is_available()


def _row(settings: Settings, key: str, run: Run | None, gpu: bool) -> Planned:
    row = settings.rows[key]
    wanted = len(row.trainings)
    waits = row.needs == "gpu" and not gpu
    if run is None:
        return Planned(key, wanted, 0, (NEVER,), waits)
    stands = Standing.here(key, settings)
    why = [stands.why_not(run, replica) for replica in run.replicas]
    kept = why.count(None)
    reasons = tuple(dict.fromkeys(reason for reason in why if reason))
    if len(why) < wanted or not reasons:
        reasons = (*reasons, NEVER)
    return Planned(key, wanted - kept, kept, reasons, waits)


def _timed(
    settings: Settings,
    planned: Planned,
    runs: Mapping[str, Run],
    earlier: Mapping[str, Run],
    rates: Mapping[Kind, float],
) -> Planned:
    """A planned row with an estimate of its time, by the first source that has one."""
    row = settings.rows[planned.row]
    kind, passes = _kind(settings, row), _passes(settings, row) / len(row.trainings) * planned.replicas
    if run := runs.get(planned.row):
        return replace(planned, seconds=_of_a_replica(run) * planned.replicas, source="record")
    if run := earlier.get(planned.row):
        return replace(planned, seconds=_of_a_replica(run) * planned.replicas, source="history")
    if kind in rates:
        return replace(planned, seconds=rates[kind] * passes, source="similar")
    return planned


def _earlier(keys: Iterable[str]) -> dict[str, Run]:
    """Runs of rows that git's history has, and the folder no longer."""
    runs: dict[str, Run] = {}
    deleted = deleted_files(records.RUNS)
    for key in keys:
        if commit := deleted.get(path := records.run_path(key)):
            with suppress(ValidationError):  # of a form that is no longer read
                runs[key] = Run.model_validate_json(committed_text(path, commit) or "")
    return runs


def _rates(settings: Settings, runs: dict[str, Run]) -> dict[Kind, float]:
    """Seconds of one example's pass forward and backward, by kind of row: the median of those that ran."""
    seconds: dict[Kind, list[float]] = {}
    for key, run in runs.items():
        row = settings.rows[key]
        per_pass = _of_a_replica(run) * len(row.trainings) / _passes(settings, row)
        seconds.setdefault(_kind(settings, row), []).append(per_pass)
    return {kind: median(values) for kind, values in seconds.items()}


def _kind(settings: Settings, row: Row) -> Kind:
    """Network, method, raw data and device that make rows alike in what a pass takes."""
    return row.model.name, row.method, settings.split(row.data).raw, row.needs


def _passes(settings: Settings, row: Row) -> float:
    """Examples that all trainings of a row take forward and backward; at least 1."""
    examples, circumstances = settings.split(row.data).train, settings.circumstances(row)
    passes = (each.total_steps(examples) * each.passes_per_step(circumstances) for each, _ in row.trainings)
    return max(1.0, float(sum(passes)))


def _of_a_replica(run: Run) -> float:
    """Seconds of one replica; replicas that were trained together share their time."""
    spans = {(replica.started, replica.ended) for replica in run.replicas}
    return sum(ended - started for started, ended in spans) / len(run.replicas)
