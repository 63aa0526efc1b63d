"""The loop: replicas trained together, their history, and resuming.

A row's results grow by the replica: those that were trained before, by code and from data and settings that
still stand, are kept, and only the others are trained. What is trained appears as a whole when its last step
is done. Until then a checkpoint lies under a name made of the row, the digests of everything that decides its
numbers, and which replicas it is of.
"""

import platform
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pipeline.data.prepared import Prepared, Split
from pipeline.errors import Stopped
from pipeline.files import digest_file, digest_json, write_text
from pipeline.identity import provenance
from pipeline.identity.code import train_code
from pipeline.identity.standing import Standing
from pipeline.methods.base import Execution, Guarantee, Method, Predict, State, Task
from pipeline.methods.registry import build_method, build_net
from pipeline.methods.settings import MethodSettings
from pipeline.models.model import Model
from pipeline.params import Row, Settings
from pipeline.pretrained.relevance import check_relevance, read_relevance
from pipeline.pretrained.starts import check_start, load_start, read_start
from pipeline.privacy.gradients import Tensors
from pipeline.privacy.randomness import Streams, initial_seed
from pipeline.results import records
from pipeline.results.histories import history_csv, read_history
from pipeline.results.records import Provenance, Run, Trained
from pipeline.training import checkpoints, runs
from pipeline.training.checkpoints import CHECKPOINTS, Checkpoint, alone
from pipeline.training.stopping import Asked, noting_signals
from pipeline.training.uncounted import data_uses

SHOW_EVERY = 1.0  # seconds between looks at training between two lines of the history


@dataclass(frozen=True, eq=False)
class Replica:
    """What to train: a level's settings under a name, and a seed."""

    level: str
    seed: int
    settings: MethodSettings

    @property
    def name(self) -> str:
        """Name of its random streams."""
        return f"{self.level}/seed={self.seed}"


@dataclass(frozen=True)
class Progress:
    """Where training stands, for whoever shows it."""

    group: int
    groups: int
    step: int
    steps: int
    epoch: float
    noted: bool  # whether the history got a line
    guarantees: tuple[Guarantee, ...]  # the replicas', for whoever tells what is spent so far
    reproducible: bool  # whether noise is seeded, so that nothing holds
    train_loss: float  # mean over replicas, of the last sample
    validation_accuracy: float | None  # mean over replicas, when last measured
    seconds_left: float


Show = Callable[[Progress], None]


@dataclass(frozen=True)
class Group:
    """Replicas trained together, and what came of them."""

    replicas: tuple[Replica, ...]
    method: Method
    state: State
    history: list[tuple[Any, ...]]
    steps: int
    seconds: float
    started: float
    ended: float


def replicas(row: Row) -> list[Replica]:
    """A row's levels times its seeds."""
    return [Replica(row.level(own), seed, own) for own in row.resolved for seed in range(row.seeds)]


@dataclass(frozen=True)
class Context:
    """What replicas are trained from and by, whichever they are."""

    model: Model
    method: str
    reproducible: bool  # whether noise and samples are seeded too
    data: Prepared
    execution: Execution  # device, and how to compute on it
    show: Show  # called whenever the history gets a line, and about once a second in between
    checkpoint: Path  # folder
    checkpoint_every: float  # seconds between checkpoints: what a kill loses at most


@dataclass(frozen=True)
class Done:
    """What `train` did."""

    path: Path  # reports/runs/ROW.json
    trained: int  # replicas
    kept: int


def train(
    key: str,
    settings: Settings,
    data: Prepared,
    execution: Execution,
    show: Show,
    checkpoint_every: float,
    root: Path = Path(),
) -> Done:
    """Train what a row lacks and write its run, history and weights; an interrupted run continues.

    Args:
        key: the row.
        settings: all settings.
        data: the row's prepared data.
        execution: device and how to compute on it.
        show: see `Context`.
        checkpoint_every: see `Context`.
        root: the folder of params.yaml.

    Raises:
        UserError: another process trains this row; the disk can't be written; the data, or the weights to
            start from or the relevances that come with them, don't fit.
    """
    check_start(data, settings)
    check_relevance(data, settings)
    row = settings.row(key)
    source = provenance_of(key, settings, data, execution)
    # by the row, whatever of it is trained: what stands must not change before the results are written
    with alone(root / CHECKPOINTS / key):
        before = records.read_run(key, root)
        stands = Standing(key, row, data.digests)
        kept = tuple(one for one in before.replicas if not stands.why_not(before, one)) if before else ()
        names = {(one.level, one.seed) for one in kept}
        wanted = [one for one in replicas(row) if (one.level, one.seed) not in names]
        # DVC expects the folder, also of replicas that came without their weights
        runs.make_folder(key, root)
        if not wanted and before and len(kept) == len(before.replicas):
            # of a run that was killed when all was written
            shutil.rmtree(root / CHECKPOINTS / key, ignore_errors=True)
            return Done(records.run_path(key, root), 0, len(kept))
        missing = [replica.name for replica in wanted]
        identity = digest_json([source.config, source.code, source.data, missing])
        checkpoint = root / CHECKPOINTS / key / identity[7:19]
        context = Context(
            row.model, row.method, row.reproducible, data, execution, show, checkpoint, checkpoint_every
        )
        groups = train_replicas(wanted, context)
        _write(key, row, groups, source, before, kept, data, root)
        shutil.rmtree(checkpoint, ignore_errors=True)
    return Done(records.run_path(key, root), len(wanted), len(kept))


def _write(
    key: str,
    row: Row,
    groups: list[Group],
    source: Provenance,
    before: Run | None,
    kept: tuple[Trained, ...],
    data: Prepared,
    root: Path,
) -> None:
    """Weights, then the history, then the run that vouches for both by their digests."""
    trained = {(one.level, one.seed): (one, before.origin(one)) for one in kept} if before else {}
    for group in groups:
        model = group.method.model(group.state)
        for index, replica in enumerate(group.replicas):
            path = runs.weights_path(key, replica.level, replica.seed, root)
            digest = runs.write_weights(path, {name: value[index].cpu() for name, value in model.items()})
            trained[replica.level, replica.seed] = (_trained(group, index, digest, data), source)
    history = records.history_path(key, root)
    names = {(one.level, one.seed) for one in kept}
    lines = [line for group in groups for line in group.history]
    lines += [line for line in read_history(history) if line[:2] in names] if before else []
    write_text(history, history_csv(lines))
    order = [(one.level, one.seed) for one in replicas(row)]
    every, origins = records.with_origins(trained[name] for name in order)
    run = Run(
        row=key,
        model=row.model.model_dump(mode="json"),
        method=row.method,
        data=row.data,
        replicas=every,
        origins=origins,
        history=digest_file(history),
    )
    records.write(run, root)
    runs.clear(key, {runs.weights_path(key, *name, root) for name in order}, root)


def train_replicas(wanted: Sequence[Replica], context: Context) -> list[Group]:
    """Train replicas of one model, those together that can share a step.

    Raises:
        Stopped: a signal asked for it. A checkpoint was written, so that the next call goes on from there.
    """
    groups = grouped(wanted)
    with noting_signals() as asked:
        return [
            _train_group(members, context, number, len(groups), asked)
            for number, members in enumerate(groups)
        ]


def grouped(wanted: Sequence[Replica]) -> list[list[Replica]]:
    """Replicas of one model, in the groups that share a batch shape and a number of steps."""
    groups: dict[tuple[Any, ...], list[Replica]] = {}
    for replica in wanted:
        groups.setdefault(replica.settings.batching_key, []).append(replica)
    return list(groups.values())


def make_task(
    members: Sequence[Replica], model: Model, reproducible: bool, data: Prepared, execution: Execution
) -> Task:
    """Networks with each replica's initial weights, the data on the device, and random streams."""
    device = execution.device
    train, public = data.splits["train"], data.splits["public"]
    found = None if data.start is None else read_start(data.start)
    nets = []
    for replica in members:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(initial_seed(replica.seed))
            nets.append(build_net(model, replica.settings.input_shape(data.input_shape), data.classes))
        if found is not None:
            load_start(nets[-1], found, model.trainable)
    starts = [dict(net.named_parameters()) for net in nets]
    parameters = {
        name: torch.stack([start[name].detach() for start in starts]).to(device)
        for name, value in starts[0].items()
        if value.requires_grad
    }
    return Task(
        net=nets[0].to(device),
        parameters=parameters,
        inputs=torch.from_numpy(np.array(train.inputs)).to(device),
        labels=torch.from_numpy(np.array(train.labels)).to(device),
        public=torch.from_numpy(np.array(public.inputs)).to(device),
        public_labels=torch.from_numpy(np.array(public.labels)).to(device),
        relevance=read_relevance(data, device),
        streams=Streams([replica.name for replica in members], reproducible, device),
        execution=execution,
    )


def predictor(method: Method, network: Tensors) -> Predict:
    """The method's own way to predict, wherever an input stands."""
    return lambda inputs, place: method.predict(network, inputs)


def accuracy(predict: Predict, replicas: int, split: Split, execution: Execution) -> Tensor:
    """(R,) share of a split's inputs that ``predict`` classifies as labelled, for each of ``replicas``."""
    size = min(2000, execution.examples_at_once(replicas))
    right = torch.zeros(replicas, dtype=torch.float64, device=execution.device)
    for start in range(0, len(split), size):
        part = torch.from_numpy(np.array(split.inputs[start : start + size])).to(execution.device)
        truth = torch.from_numpy(np.array(split.labels[start : start + size])).to(execution.device)
        with torch.no_grad():
            right += (predict(part, start) == truth).sum(1)
    return right / len(split)


def _train_group(members: list[Replica], context: Context, number: int, groups: int, asked: Asked) -> Group:
    execution, data, show = context.execution, context.data, context.show
    path = context.checkpoint / f"group{number}.pt"
    task = make_task(members, context.model, context.reproducible, data, execution)
    method = build_method(
        context.method, task, [replica.settings for replica in members], context.model.normalization
    )
    own, examples = members[0].settings, len(task.labels)
    steps = own.total_steps(examples)
    validation = data.splits["validation"]
    last = checkpoints.restore(path, execution.device) or Checkpoint(method.init(), 0, [], 0.0, time.time())
    if last.entropy is not None:
        task.streams.entropy = bytes.fromhex(last.entropy)
    entropy = task.streams.entropy.hex() if method.noise_drawn_once else None
    guarantees = tuple(method.guarantee(replica) for replica in range(len(members)))
    if method.noise_drawn_once and last.done == 0:
        checkpoints.save(path, replace(last, entropy=entropy))
    state, history, judged = last.state, last.history, None
    begun = saved = shown = time.monotonic()
    for step in range(last.done, steps):
        with torch.no_grad():
            state, metrics = method.step(state, step)
        done, now = step + 1, time.monotonic()
        epoch = done * own.batch / examples
        noted = own.logs_after(done, examples) or done == steps
        if noted or now - shown >= SHOW_EVERY:
            values = {name: value.tolist() for name, value in metrics.items()}
            if noted:
                with torch.no_grad():
                    network = method.network(method.model(state), 0)
                found = accuracy(predictor(method, network), len(members), validation, execution)
                values["validation_accuracy"] = found.tolist()
                judged = float(np.mean(values["validation_accuracy"]))
                history += [
                    (replica.level, replica.seed, done, epoch, name, column[index])
                    for name, column in sorted(values.items())
                    for index, replica in enumerate(members)
                ]
            show(
                Progress(
                    group=number,
                    groups=groups,
                    step=done,
                    steps=steps,
                    epoch=epoch,
                    noted=noted,
                    guarantees=guarantees,
                    reproducible=context.reproducible,
                    train_loss=float(np.mean(values["train_loss"])),
                    validation_accuracy=judged,
                    seconds_left=(now - begun) / (done - last.done) * (steps - done),
                )
            )
            shown = now
        stopped_by = asked()
        due = stopped_by is not None or time.monotonic() - saved >= context.checkpoint_every
        if done == steps or (due and method.resumable(done)):
            trained = last.seconds + time.monotonic() - begun
            checkpoints.save(path, Checkpoint(state, done, history, trained, last.started, entropy))
            saved = time.monotonic()
            if stopped_by is not None:
                where = f"group {number + 1} of {groups}, step {done} of {steps}"
                raise Stopped(stopped_by, f"stopped after {where}; the same command goes on from there")
    seconds = last.seconds + time.monotonic() - begun
    return Group(tuple(members), method, state, history, steps, seconds, last.started, time.time())


def _trained(group: Group, index: int, weights: str, data: Prepared) -> Trained:
    replica = group.replicas[index]
    guarantee = group.method.guarantee(index)
    return Trained(
        level=replica.level,
        seed=replica.seed,
        settings=replica.settings.model_dump(mode="json"),
        steps=group.steps,
        spending=guarantee.spending,
        delta=guarantee.delta,
        claimed_by=guarantee.claimed_by,
        broken=guarantee.broken,
        uncounted=(*data_uses(data, replica.settings), *guarantee.uncounted),
        protects=guarantee.protects,
        weights=weights,
        seconds=round(group.seconds, 3),
        started=group.started,
        ended=group.ended,
        origin=0,  # until it stands among its row's others
    )


def describe_device(device: torch.device) -> str:
    """The device in words: 'cuda (NVIDIA H200)', 'cpu (2 threads)'."""
    if device.type == "cuda":
        return f"cuda ({torch.cuda.get_device_name(device)})"
    return f"cpu ({platform.machine()}, {torch.get_num_threads()} threads)"


def provenance_of(key: str, settings: Settings, data: Prepared, execution: Execution) -> Provenance:
    """What is about to make a row's numbers."""
    row = settings.row(key)
    revision, dirty = provenance.revision()
    code = train_code(row.method, row.model.name)
    return Provenance(
        config=settings.row_digest(key),
        code=code.digest,
        parts=code.parts,
        revision=revision,
        dirty=dirty,
        data=data.digests,
        examples=len(data.splits["train"]),
        edition={name: raw["edition"] for name, raw in data.manifest["raw"].items()},
        versions=provenance.versions(),
        device=describe_device(execution.device),
        reproducible=row.reproducible,
        command=" ".join([Path(sys.argv[0]).name, *sys.argv[1:]]),
    )
