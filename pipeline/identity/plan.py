"""Missing training runs, the reasons why they are missing, and how long such runs took before."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean

from dprepro.pipeline.data.declaration import data_here
from dprepro.pipeline.identity.frozen import frozen_changed
from dprepro.pipeline.identity.validity import reason_invalid
from dprepro.pipeline.params import Settings
from dprepro.pipeline.results import records
from dprepro.pipeline.results.schema import RowTrainings

NEVER = "never ran"
GPU_DEVICES = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")  # of NVIDIA, AMD, and Linux in Windows


@dataclass(frozen=True)
class RowToTrain:
    """Row with missing training runs."""

    row: str
    trainings: int  # missing ones
    kept: int  # valid ones
    reasons: tuple[str, ...]  # why trainings are missing or invalid
    waits: bool  # the row needs a GPU, and this machine has none
    seconds: float | None = None  # expected for the missing trainings; None: no similar row ran


def rows_to_train(settings: Settings, gpu: bool) -> list[RowToTrain]:
    """Rows with missing training runs: first the rows that this machine can train, by increasing duration.

    ``gpu``: whether this machine has a GPU.
    """
    runs = {key: run for key in settings.rows if (run := records.read_run(key))}
    planned = [each for key in settings.rows if (each := _row(settings, key, runs.get(key), gpu)).trainings]
    timed = [each if each.waits else _timed(settings, each, runs) for each in planned]
    return sorted(timed, key=lambda row: (row.waits, row.seconds is None, row.seconds or 0.0))


def lacks(settings: Settings, key: str) -> bool:
    """Return whether a row has missing training runs."""
    return _row(settings, key, records.read_run(key), gpu=True).trainings > 0


def gpu_here() -> bool:
    """Return whether this machine has a GPU that torch can use."""
    if sys.platform == "linux" and not any(Path(device).exists() for device in GPU_DEVICES):
        return False  # saves the import of torch, which takes seconds
    import torch

    return torch.cuda.is_available()


def _row(settings: Settings, key: str, run: RowTrainings | None, gpu: bool) -> RowToTrain:
    row = settings.rows[key]
    wanted = len(row.trainings)
    waits = row.needs == "gpu" and not gpu
    if run is None:
        return RowToTrain(key, wanted, 0, (NEVER,), waits)
    data = data_here(key, settings)
    why = [reason_invalid(training, row, data, frozen_changed) for training in run.trainings]
    kept = why.count(None)
    reasons = tuple(dict.fromkeys(reason for reason in why if reason))
    if len(why) < wanted or not reasons:
        reasons = (*reasons, NEVER)
    return RowToTrain(key, wanted - kept, kept, reasons, waits)


def _timed(settings: Settings, planned: RowToTrain, runs: Mapping[str, RowTrainings]) -> RowToTrain:
    """``planned`` with the mean seconds of the row's recorded trainings.

    If there are none: the mean seconds of an epoch of the same network and method, times the row's epochs.
    """

    def kind(key: str) -> tuple[str, str]:
        return settings.rows[key].model.name, settings.rows[key].method

    def epochs(key: str) -> float:  # 1 of a method without such a setting
        return mean(getattr(each, "epochs", 1.0) for each, _ in settings.rows[key].trainings)

    if planned.row in runs:
        seconds = _seconds(runs[planned.row])
    elif same := [key for key in runs if kind(key) == kind(planned.row)]:
        seconds = mean(_seconds(runs[key]) / epochs(key) for key in same) * epochs(planned.row)
    else:
        return planned
    return replace(planned, seconds=seconds * planned.trainings)


def _seconds(run: RowTrainings) -> float:
    """Mean time of a training."""
    return mean(run.seconds[training.level] for training in run.trainings)
