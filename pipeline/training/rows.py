"""A row's missing trainings.

An earlier training is kept if it is valid and its weights are here; the others are trained. A new
training replaces the record's entry of its level and seed. A training enters the record after its last step.
Until then it has a checkpoint, whose path depends on the row, the digests of everything that decides its
numbers, and the trainings that share the checkpoint.
"""

import json
import platform
import shutil
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
import torch

from dprepro.errors import Unproven, UserError, counted
from dprepro.pipeline.data.prepared import Prepared
from dprepro.pipeline.files import digest_json, write_json
from dprepro.pipeline.identity.frozen import frozen_here, valid_trainings
from dprepro.pipeline.identity.provenance import revision, versions
from dprepro.pipeline.identity.validity import training_versions
from dprepro.pipeline.methods.base import Execution
from dprepro.pipeline.methods.settings import method_settings
from dprepro.pipeline.params import Row, Settings
from dprepro.pipeline.params.own import OWN
from dprepro.pipeline.pretrained.loading import check_joined
from dprepro.pipeline.results import records
from dprepro.pipeline.results.schema import (
    Point,
    Provenance,
    Replaced,
    RowTrainings,
    TrainingKey,
    TrainingRecord,
)
from dprepro.pipeline.results.weights import clear_weights, lacking, weights_path, write_weights
from dprepro.pipeline.training.checkpoints import checkpoint_lock
from dprepro.pipeline.training.loop import Context, FinishedTraining, SeedRun, Show
from dprepro.pipeline.training.not_covered import data_uses
from dprepro.pipeline.training.side_by_side import train_runs


def declared(row: Row) -> list[SeedRun]:
    """All seeds of all levels of a row."""
    return [SeedRun(row.level(settings), seed, settings) for settings, seed in row.trainings]


def missing(row: Row, run: RowTrainings | None, data: Prepared, root: Path = Path()) -> list[SeedRun]:
    """Declared trainings without a valid record or without weights: those that `train` would train."""
    lost = {training.key for training in lacking(run, root, compared=True)}
    kept = valid_trainings(run, row, data).keys() - lost
    return [training for training in declared(row) if training.key not in kept]


def train(
    key: str,
    settings: Settings,
    data: Prepared,
    execution: Execution,
    show: Show,
    checkpoint_every: float,
    root: Path = Path(),
    workers: int = 1,
) -> int:
    """Train a row's missing trainings and write their records and weights; an interrupted run continues.

    Returns the number of new trainings.

    ``data`` are the row's prepared data; see `Context` for ``show`` and ``checkpoint_every`` (seconds), and
    `train_runs` for ``workers``.

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
    # one lock for the row, because its valid trainings must not change before the results are written
    with checkpoint_lock(root / records.CHECKPOINTS / key):
        previous = records.read_run(key, root)
        valid = valid_trainings(previous, row, data)
        wanted = missing(row, previous, data, root)
        frozen = _frozen(wanted, row, data)
        frozen_given = sorted({numbers for numbers in frozen.values() if numbers})
        identity = digest_json([source.config, source.made_by, source.data, *frozen_given])
        checkpoint = root / records.CHECKPOINTS / key / identity[7:19]
        context = Context(row.model, row.reproducible, data, execution, show, checkpoint, checkpoint_every)
        # stopped trainings of other settings, which were taken back, must be in the record too
        if previous and not wanted and (stopped(key, root) or len(valid) < len(previous.trainings)):
            _write(key, row, None, source, data, {}, root)
        try:
            with closing(train_runs(wanted, context, workers)) as trainings:
                for finished in trainings:
                    _write(key, row, finished, source, data, frozen, root)
        except Unproven as problem:
            write_json(stopped_path(key, root), stopped(key, root) + problem.trainings)
            if valid:
                _write(key, row, None, source, data, {}, root)
            raise
        shutil.rmtree(root / records.CHECKPOINTS / key, ignore_errors=True)
    return len(wanted)


def _frozen(trainings: Sequence[SeedRun], row: Row, data: Prepared) -> dict[TrainingKey, tuple[float, ...]]:
    """Fingerprints of each training's frozen tensors."""
    networks: dict[tuple[int, tuple[int, ...]], tuple[float, ...]] = {}
    for training in trainings:
        network = training.seed, training.settings.input_shape(data.input_shape)
        if network not in networks:
            networks[network] = frozen_here(row.model, training.settings, training.seed, data)
    return {
        training.key: networks[training.seed, training.settings.input_shape(data.input_shape)]
        for training in trainings
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
    return root / records.CHECKPOINTS / key / "stopped.json"


def stopped(key: str, root: Path) -> int:
    """Number in `stopped_path`; 0 without the file."""
    path = stopped_path(key, root)
    return int(json.loads(path.read_bytes())) if path.exists() else 0


def _write(
    key: str,
    row: Row,
    finished: FinishedTraining | None,
    source: Provenance,
    data: Prepared,
    frozen: Mapping[TrainingKey, tuple[float, ...]],
    root: Path,
) -> None:
    """Write a training's weights, then its record beside those of valid ones.

    Trainings that are invalid now are replaced. If ``finished`` is None, only this is done.
    """
    previous = records.read_run(key, root)
    trained = valid_trainings(previous, row, data)
    renewed = {finished.run.key} if finished else set()
    # a valid training whose weights are lost counts beside its rebuilt one, except on public data
    private = OWN in source.edition.values()
    earlier = previous.replaced if previous else ()
    gone: list[TrainingRecord | Replaced] = [each for each in earlier if isinstance(each, TrainingRecord)]
    uncounted = [each for each in earlier if isinstance(each, Replaced)]
    gone += records.with_replaced(uncounted, [None] * stopped(key, root))
    if previous:
        gone += [
            training
            for training in previous.trainings
            if training.key not in trained or (private and training.key in renewed)
        ]
    if finished is not None:
        model, name = finished.method.model(finished.state), finished.run.key
        path = weights_path(key, *name, root)
        digest = write_weights(path, {tensor: value.cpu() for tensor, value in model.items()})
        trained[name] = _trained(finished, data, row, key, source, frozen[name], digest)
    order = [training.key for training in declared(row) if training.key in trained]
    run = RowTrainings(row=key, trainings=tuple(trained[name] for name in order), replaced=tuple(gone))
    records.write(run, root)
    stopped_path(key, root).unlink(missing_ok=True)
    clear_weights(key, {weights_path(key, *name, root) for name in order}, root)


def _trained(
    finished: FinishedTraining,
    data: Prepared,
    row: Row,
    key: str,
    origin: Provenance,
    frozen: tuple[float, ...],
    weights: str,
) -> TrainingRecord:
    run, method = finished.run, finished.method
    guarantee = method.guarantee()
    curves: dict[str, list[Point]] = {}
    for *_, step, epoch, metric, value in finished.history:  # older checkpoints have more
        curves.setdefault(metric, []).append((step, round(epoch, 4), float(f"{value:.6g}")))
    return TrainingRecord(
        row=key,
        model=row.model.model_dump(mode="json"),
        method=row.method,
        data=row.data,
        level=run.level,
        seed=run.seed,
        settings=run.settings.model_dump(mode="json"),
        steps=finished.steps,
        spending=guarantee.spending,
        delta=guarantee.delta,
        claimed_by=guarantee.claimed_by,
        broken=guarantee.broken,
        not_covered=(*data_uses(data, run.settings, row.model.network), *guarantee.not_covered),
        protects=guarantee.protects,
        noise=method.task.streams.noise,
        isolation=method.isolation,
        weights=weights,
        frozen=frozen,
        seconds=round(finished.seconds, 3),
        cpu_seconds=round(finished.cpu_seconds, 3),
        started=finished.started,
        ended=finished.ended,
        origin=origin,
        curves={metric: tuple(points) for metric, points in sorted(curves.items())},
    )


def describe_device(device: torch.device) -> str:
    """Name of the device: 'cuda (NVIDIA H200)', 'cpu (x86_64, 2 threads)'."""
    if device.type == "cuda":
        return f"cuda ({torch.cuda.get_device_name(device)})"
    return f"cpu ({platform.machine()}, {counted(torch.get_num_threads(), 'thread')})"


def provenance_of(key: str, settings: Settings, data: Prepared, execution: Execution) -> Provenance:
    """Provenance of a row's next training."""
    row = settings.row(key)
    commit, dirty = revision()
    return Provenance(
        config=settings.row_digest(key),
        plan=settings.plan_digest(key),
        made_by=training_versions(row.method, row.model.name),
        revision=commit,
        dirty=dirty,
        data=data.digests,
        declared=settings.data_digest(row.data),
        examples=len(data.splits["train"]),
        edition={name: raw["edition"] for name, raw in data.manifest["raw"].items()},
        versions=versions(),
        device=describe_device(execution.device),
        reproducible=row.reproducible,
        command=" ".join([Path(sys.argv[0]).name, *sys.argv[1:]]),
    )
