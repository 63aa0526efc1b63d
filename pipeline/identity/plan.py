"""Missing training runs, the reasons why they are missing, and estimates of their duration."""

import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean, median
from typing import Literal

from pydantic import TypeAdapter, ValidationError

from dprepro.errors import UserError
from dprepro.pipeline.identity.provenance import committed_text, deleted_files
from dprepro.pipeline.identity.standing import Standing
from dprepro.pipeline.params import Row, Settings
from dprepro.pipeline.results import records
from dprepro.pipeline.results.schema import Run

NEVER = "never ran"
GPU_ESTIMATES = TypeAdapter(dict[str, float])
# Origin of an estimate: the row's record, its last record in git, or rows of the same `Kind`
Source = Literal["record", "history", "similar"]
Kind = tuple[str, str, str, str]
GPU_DEVICES = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")  # of NVIDIA, AMD, and Linux in Windows


@dataclass(frozen=True)
class Planned:
    """Row with missing training runs."""

    row: str
    replicas: int  # missing replicas
    kept: int  # valid replicas
    reasons: tuple[str, ...]  # why replicas are missing or invalid
    waits: bool  # the row needs a GPU, and this machine has none
    seconds: float | None = None  # estimate for the missing replicas; None: no similar row ran
    source: Source | None = None  # origin of the estimate


def plan(settings: Settings, gpu: bool) -> list[Planned]:
    """Rows with missing training runs: first the rows that this machine can train, by increasing duration.

    ``gpu``: whether this machine has a GPU.
    """
    runs = {key: run for key in settings.rows if (run := records.read_run(key))}
    planned = [each for key in settings.rows if (each := _row(settings, key, runs.get(key), gpu)).replicas]
    rates = _rates(settings, runs)
    never = [each.row for each in planned if not each.waits and each.row not in runs]
    earlier = _earlier(never) if never else {}
    timed = [each if each.waits else _timed(settings, each, runs, earlier, rates) for each in planned]
    return sorted(timed, key=lambda row: (row.waits, row.seconds is None, row.seconds or 0.0))


def lacks(settings: Settings, key: str) -> bool:
    """Return whether a row has missing training runs."""
    return _row(settings, key, records.read_run(key), gpu=True).replicas > 0


def gpu_hours(root: Path = Path()) -> dict[str, float]:
    """Estimated GPU hours by row (`pipeline.cluster.costs`); empty if nothing is estimated.

    Raises:
        UserError: the file has no such numbers.
    """
    path = root / records.GPU_HOURS
    try:
        return GPU_ESTIMATES.validate_json(path.read_bytes()) if path.exists() else {}
    except ValidationError as problem:
        raise UserError(f"{path}: not GPU hours by row: {problem.errors()[0]['msg']}") from problem


def gpu_here() -> bool:
    """Return whether this machine has a GPU that torch can use."""
    if sys.platform == "linux" and not any(Path(device).exists() for device in GPU_DEVICES):
        return False  # saves the import of torch, which takes seconds
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
    """``planned`` with an estimated duration: from the row's record, its record in git, or similar rows."""
    row = settings.rows[planned.row]
    kind, passes = _kind(settings, row), _passes(settings, row) / len(row.trainings) * planned.replicas
    if run := runs.get(planned.row):
        return replace(planned, seconds=_seconds_now(settings, row, run) * planned.replicas, source="record")
    if run := earlier.get(planned.row):
        return replace(planned, seconds=_seconds_now(settings, row, run) * planned.replicas, source="history")
    if kind in rates:
        return replace(planned, seconds=rates[kind] * passes, source="similar")
    return planned


def _earlier(keys: Iterable[str]) -> dict[str, Run]:
    """Last record in git's history of each row in ``keys`` whose record was deleted."""
    runs: dict[str, Run] = {}
    deleted = deleted_files(records.RUNS)
    for key in keys:
        if commit := deleted.get(path := records.run_path(key)):
            with suppress(ValidationError):  # a record in a former schema
                runs[key] = Run.model_validate_json(committed_text(path, commit) or "")
    return runs


def _rates(settings: Settings, runs: dict[str, Run]) -> dict[Kind, float]:
    """Median seconds of one example's forward and backward pass, by `Kind` of row."""
    seconds: dict[Kind, list[float]] = {}
    for key, run in runs.items():
        row = settings.rows[key]
        per_pass = _seconds_now(settings, row, run) * len(row.trainings) / _passes(settings, row)
        seconds.setdefault(_kind(settings, row), []).append(per_pass)
    return {kind: median(values) for kind, values in seconds.items()}


def _kind(settings: Settings, row: Row) -> Kind:
    """Network, method, raw data and device, which decide the duration of a pass."""
    return row.model.name, row.method, settings.split(row.data).raw, row.needs


def _passes(settings: Settings, row: Row) -> float:
    """Number of forward and backward passes of single examples in all trainings of a row; at least 1."""
    examples, circumstances = settings.split(row.data).train, settings.circumstances(row)
    passes = (each.total_steps(examples) * each.passes_per_step(circumstances) for each, _ in row.trainings)
    return max(1.0, float(sum(passes)))


def _seconds_now(settings: Settings, row: Row, run: Run) -> float:
    """Mean training time of a replica in seconds, scaled to the steps and batches that the row has now.

    Replicas that were trained together share the time.
    """
    spans = {(replica.started, replica.ended) for replica in run.replicas}
    seconds = sum(ended - started for started, ended in spans) / len(run.replicas)
    examples = settings.split(row.data).train
    drawn = mean(each.total_steps(examples) * each.batch for each, _ in row.trainings)
    recorded = mean(replica.steps * replica.settings.get("batch", 1) for replica in run.replicas)
    return seconds * drawn / max(1, recorded)
