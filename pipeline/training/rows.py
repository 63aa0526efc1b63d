"""Training of a row's missing replicas.

A replica of an earlier run is kept if it is valid and its weights are here; the others are trained. A new
training replaces the record's entry of its level and seed. A replica enters the record after its last step.
Until then it has a checkpoint, whose path depends on the row, the digests of everything that decides its
numbers, and the replicas that share the checkpoint.
"""

import json
import platform
import shutil
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from dprepro.errors import Unproven, UserError
from dprepro.pipeline.data.prepared import Prepared
from dprepro.pipeline.files import digest_json, write_json
from dprepro.pipeline.identity import provenance, versions
from dprepro.pipeline.identity.validity import frozen_here, reason_invalid
from dprepro.pipeline.methods.base import Execution
from dprepro.pipeline.methods.rooms import method_settings
from dprepro.pipeline.params import Row, Settings
from dprepro.pipeline.params.own import OWN
from dprepro.pipeline.pretrained.joining import check_joined
from dprepro.pipeline.results import records
from dprepro.pipeline.results.schema import Point, Provenance, Replaced, ReplicaKey, Run, Trained
from dprepro.pipeline.results.weights import clear_weights, lacking, weights_path, write_weights
from dprepro.pipeline.training.checkpoints import CHECKPOINTS, checkpoint_lock
from dprepro.pipeline.training.loop import Context, Group, Replica, Show
from dprepro.pipeline.training.not_covered import data_uses
from dprepro.pipeline.training.side_by_side import train_replicas


@dataclass(frozen=True)
class TrainedRow:
    """Result of `train`: the path of the run, and numbers of replicas."""

    path: Path  # reports/trainings/ROW.jsonl
    trained: int  # new replicas
    standing: int  # valid replicas of earlier runs, whose weights are here


def replicas(row: Row) -> list[Replica]:
    """All seeds of all levels of a row."""
    return [Replica(row.level(settings), seed, settings) for settings, seed in row.trainings]


def missing(row: Row, run: Run | None, data: Prepared, root: Path = Path()) -> list[Replica]:
    """Declared replicas without a valid training or without its weights: those that `train` would train."""
    lost = {replica.key for replica in lacking(run, root, compared=True)}
    kept = {replica.key for replica in _valid(run, row, data)} - lost
    return [replica for replica in replicas(row) if replica.key not in kept]


def train(
    key: str,
    settings: Settings,
    data: Prepared,
    execution: Execution,
    show: Show,
    checkpoint_every: float,
    root: Path = Path(),
    workers: int = 1,
) -> TrainedRow:
    """Train a row's missing replicas and write their records and weights; an interrupted run continues.

    ``data`` are the row's prepared data; see `Context` for ``show`` and ``checkpoint_every`` (seconds), and
    `train_replicas` for ``workers``.

    Raises:
        UserError: another process trains this row; the disk can't be written; the data, initial weights or
            relevances don't fit the settings.
        Unproven: examples mix in a step. The stopped trainings have no bound, and count as replaced runs in
            the row's next record.
    """
    check_joined(data, settings)
    row = settings.row(key)
    check_inputs(data, row.method)
    source = provenance_of(key, settings, data, execution)
    # one lock for the row, because its valid replicas must not change before the results are written
    with checkpoint_lock(root / CHECKPOINTS / key):
        previous = records.read_run(key, root)
        valid = _valid(previous, row, data)
        wanted = missing(row, previous, data, root)
        frozen = _frozen(wanted, row, data)
        frozen_given = sorted({numbers for numbers in frozen.values() if numbers})
        identity = digest_json([source.config, source.made_by, source.data, *frozen_given])
        checkpoint = root / CHECKPOINTS / key / identity[7:19]
        context = Context(
            row.model, row.method, row.reproducible, data, execution, show, checkpoint, checkpoint_every
        )
        # stopped trainings of other settings, which were taken back, must be in the record too
        if previous and not wanted and (stopped(key, root) or len(valid) < len(previous.replicas)):
            _write(key, row, None, source, data, {}, root)
        try:
            with closing(train_replicas(wanted, context, workers)) as groups:
                for group in groups:
                    _write(key, row, group, source, data, frozen, root)
        except Unproven as problem:
            write_json(stopped_path(key, root), stopped(key, root) + problem.trainings)
            if valid:
                _write(key, row, None, source, data, {}, root)
            raise
        shutil.rmtree(root / CHECKPOINTS / key, ignore_errors=True)
    return TrainedRow(records.run_path(key, root), len(wanted), len(replicas(row)) - len(wanted))


def _frozen(replicas: Sequence[Replica], row: Row, data: Prepared) -> dict[ReplicaKey, tuple[float, ...]]:
    """Fingerprints of each replica's frozen tensors."""
    networks: dict[tuple[int, tuple[int, ...]], tuple[float, ...]] = {}
    for replica in replicas:
        network = replica.seed, replica.settings.input_shape(data.input_shape)
        if network not in networks:
            networks[network] = frozen_here(row.model, replica.settings, replica.seed, data)
    return {
        replica.key: networks[replica.seed, replica.settings.input_shape(data.input_shape)]
        for replica in replicas
    }


def check_inputs(data: Prepared, method: str) -> None:
    """Check that inputs are in [0, 1] if the method's guarantee needs this; bytes are divided by 255 later.

    Raises:
        UserError: some inputs are outside [0, 1].
    """
    inputs = data.splits["train"].inputs
    if not method_settings()[method].unit_inputs or inputs.dtype == np.uint8:
        return
    low, high = float(np.min(inputs)), float(np.max(inputs))
    if not (low >= 0 and high <= 1):
        raise UserError(
            f"data/prepared/{data.name}: inputs lie between {low:g} and {high:g}; method {method!r} adds "
            "noise for features in [0, 1]"
        )


def stopped_path(key: str, root: Path) -> Path:
    """File with the number of a row's or a search's stopped trainings that are in no record yet."""
    return root / CHECKPOINTS / key / "stopped.json"


def stopped(key: str, root: Path) -> int:
    """Number in `stopped_path`; 0 without the file."""
    path = stopped_path(key, root)
    return int(json.loads(path.read_bytes())) if path.exists() else 0


def _write(
    key: str,
    row: Row,
    group: Group | None,
    source: Provenance,
    data: Prepared,
    frozen: Mapping[ReplicaKey, tuple[float, ...]],
    root: Path,
) -> None:
    """Write a group's weights, then their records beside those of valid replicas.

    Replicas that are invalid now are replaced. If ``group`` is None, only this is done.
    """
    previous = records.read_run(key, root)
    trained = {replica.key: replica for replica in _valid(previous, row, data)}
    renewed = {replica.key for replica in group.replicas} if group else set()
    # a valid training whose weights are lost counts beside its rebuilt one, except on public data
    private = OWN in source.edition.values()
    earlier = previous.replaced if previous else ()
    gone: list[Trained | Replaced] = [each for each in earlier if isinstance(each, Trained)]
    uncounted = [each for each in earlier if isinstance(each, Replaced)]
    gone += records.with_replaced(uncounted, [None] * stopped(key, root))
    if previous:
        gone += [
            replica
            for replica in previous.replicas
            if replica.key not in trained or (private and replica.key in renewed)
        ]
    if group is not None:
        model = group.method.model(group.state)
        for index, replica in enumerate(group.replicas):
            path = weights_path(key, *replica.key, root)
            digest = write_weights(path, {name: value[index].cpu() for name, value in model.items()})
            about = (key, source, frozen[replica.key], digest)
            trained[replica.key] = _trained(group, index, data, row, *about)
    order = [replica.key for replica in replicas(row) if replica.key in trained]
    run = Run(row=key, replicas=tuple(trained[name] for name in order), replaced=tuple(gone))
    records.write(run, root)
    stopped_path(key, root).unlink(missing_ok=True)
    clear_weights(key, {weights_path(key, *name, root) for name in order}, root)


def _valid(run: Run | None, row: Row, data: Prepared) -> tuple[Trained, ...]:
    """Valid replicas of a run."""
    return tuple(each for each in run.replicas if not reason_invalid(each, row, data)) if run else ()


def _trained(
    group: Group,
    index: int,
    data: Prepared,
    row: Row,
    key: str,
    origin: Provenance,
    frozen: tuple[float, ...],
    weights: str,
) -> Trained:
    replica = group.replicas[index]
    guarantee = group.method.guarantee(index)
    curves: dict[str, list[Point]] = {}
    for level, seed, step, epoch, metric, value in group.history:
        if (level, seed) == replica.key:
            curves.setdefault(metric, []).append((step, round(epoch, 4), float(f"{value:.6g}")))
    return Trained(
        row=key,
        model=row.model.model_dump(mode="json"),
        method=row.method,
        data=row.data,
        level=replica.level,
        seed=replica.seed,
        settings=replica.settings.model_dump(mode="json"),
        steps=group.steps,
        spending=guarantee.spending,
        delta=guarantee.delta,
        claimed_by=guarantee.claimed_by,
        broken=guarantee.broken,
        not_covered=(*data_uses(data, replica.settings, row.model.network), *guarantee.not_covered),
        protects=guarantee.protects,
        noise=group.method.task.streams.noise,
        isolation=group.method.isolation,
        weights=weights,
        frozen=frozen,
        seconds=round(group.seconds, 3),
        cpu_seconds=round(group.cpu_seconds / len(group.replicas), 3),
        started=group.started,
        ended=group.ended,
        origin=origin,
        curves={metric: tuple(points) for metric, points in sorted(curves.items())},
    )


def describe_device(device: torch.device) -> str:
    """Name of the device: 'cuda (NVIDIA H200)', 'cpu (x86_64, 2 threads)'."""
    if device.type == "cuda":
        return f"cuda ({torch.cuda.get_device_name(device)})"
    return f"cpu ({platform.machine()}, {torch.get_num_threads()} threads)"


def provenance_of(key: str, settings: Settings, data: Prepared, execution: Execution) -> Provenance:
    """Provenance of a row's next training."""
    row = settings.row(key)
    revision, dirty = provenance.revision()
    return Provenance(
        config=settings.row_digest(key),
        plan=settings.plan_digest(key),
        made_by=versions.training(row.method, row.model.name),
        revision=revision,
        dirty=dirty,
        data=data.digests,
        declared=settings.data_digest(row.data),
        examples=len(data.splits["train"]),
        edition={name: raw["edition"] for name, raw in data.manifest["raw"].items()},
        versions=provenance.versions(),
        device=describe_device(execution.device),
        reproducible=row.reproducible,
        command=" ".join([Path(sys.argv[0]).name, *sys.argv[1:]]),
    )
