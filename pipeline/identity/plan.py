"""What would be trained and why, and in which order an hour is used best."""

from dataclasses import dataclass

from pipeline.data import prepared
from pipeline.identity.standing import Standing
from pipeline.params import Settings
from pipeline.results import records

NEVER = "never ran"


@dataclass(frozen=True)
class Planned:
    """A row of which some replicas would be trained."""

    row: str
    replicas: int  # to train
    kept: int  # that stand
    reasons: tuple[str, ...]  # why, of those that ran
    waits: bool  # for a GPU, and there is none here
    seconds: float | None  # that so many replicas would take, by those that ran; None: none ever did
    device: str | None  # that those ran on


def plan(settings: Settings, gpu: bool) -> list[Planned]:
    """Rows to train: those that can be trained here first, the shortest of them first.

    Args:
        settings: all settings.
        gpu: whether there is one here.
    """
    planned = [row_plan for key in settings.rows if (row_plan := _row(settings, key, gpu)).replicas]
    return sorted(planned, key=lambda row: (row.waits, row.seconds is None, row.seconds or 0.0))


def lacks(settings: Settings, key: str) -> bool:
    """Whether replicas of a row would be trained."""
    return _row(settings, key, gpu=True).replicas > 0


def gpu_here() -> bool:
    """Whether this machine has a GPU that torch can use."""
    import torch

    return torch.cuda.is_available()


def _row(settings: Settings, key: str, gpu: bool) -> Planned:
    row = settings.rows[key]
    wanted = len(row.trainings)
    run = records.read_run(key)
    waits = row.needs == "gpu" and not gpu
    if run is None:
        return Planned(key, wanted, 0, (NEVER,), waits, None, None)
    stands = Standing(row, prepared.digests_here(row.data))
    why = [stands.why_not(run, replica) for replica in run.replicas]
    kept = why.count(None)
    reasons = tuple(dict.fromkeys(reason for reason in why if reason))
    if kept + len(why) - why.count(None) < wanted or not reasons:
        reasons = (*reasons, NEVER)
    # replicas trained together share their times
    spans = {(replica.started, replica.ended) for replica in run.replicas}
    each = sum(ended - started for started, ended in spans) / len(run.replicas)
    return Planned(key, wanted - kept, kept, reasons, waits, each * (wanted - kept), run.origins[-1].device)
