"""Training loop: replicas trained together, their history, and resuming."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dprepro.errors import Stopped
from dprepro.fields import Noise
from dprepro.noise.streams import Streams
from dprepro.pipeline.data.prepared import Prepared, Split
from dprepro.pipeline.files import digest_json
from dprepro.pipeline.methods.base import Execution, Method, Predict, State, Task
from dprepro.pipeline.methods.registry import build_method
from dprepro.pipeline.methods.settings import MethodSettings
from dprepro.pipeline.methods.spending import Guarantee
from dprepro.pipeline.models.model import Model
from dprepro.pipeline.pretrained.relevance import read_relevance
from dprepro.pipeline.pretrained.starts import initial_nets
from dprepro.pipeline.training import checkpoints
from dprepro.pipeline.training.checkpoints import Checkpoint
from dprepro.pipeline.training.stopping import StopSignal

SHOW_EVERY = 1.0  # seconds between updates of the progress


@dataclass(frozen=True, eq=False)
class Replica:
    """Replica to train: a level with its settings, and a seed."""

    level: str
    seed: int
    settings: MethodSettings

    @property
    def key(self) -> tuple[str, int]:
        """Level and seed, which identify the replica in its row."""
        return self.level, self.seed

    @property
    def name(self) -> str:
        """Name of the replica, which also names its random streams."""
        return f"{self.level}/seed={self.seed}"


@dataclass(frozen=True)
class Progress:
    """Progress of a training."""

    group: int
    groups: int
    step: int
    steps: int
    epoch: float
    logged: bool  # whether the history got a line
    guarantees: tuple[Guarantee, ...]  # one per replica, for the epsilon so far
    reproducible: bool  # whether noise is seeded, so that no guarantee holds
    train_loss: float  # mean over replicas, on the sample of the last step
    validation_accuracy: float | None  # mean over replicas, as last measured
    seconds_left: float


Show = Callable[[Progress], None]


@dataclass(frozen=True)
class Group:
    """Replicas trained together, and the result of their training."""

    replicas: tuple[Replica, ...]
    method: Method
    state: State
    history: list[tuple[Any, ...]]
    steps: int
    seconds: float
    started: float
    ended: float
    cpu_seconds: float  # processor time of all replicas together


@dataclass(frozen=True)
class Context:
    """Common settings of a training's replicas."""

    model: Model
    method: str
    reproducible: bool  # whether noise and samples are seeded too
    data: Prepared
    execution: Execution  # device and batch sizes of the computation
    show: Show  # called at each line of the history, and about once a second in between
    checkpoint: Path  # folder of checkpoints
    checkpoint_every: float  # seconds between checkpoints: the most that a kill loses
    final_only: bool = False  # whether validation accuracy is measured after the last step only


def grouped(replicas: Sequence[Replica], at_once: int | None = None) -> list[list[Replica]]:
    """Replicas of one model, in groups that can share their steps (`MethodSettings.batching_key`).

    ``at_once``: largest number of replicas in a group; None: no limit.
    """
    groups: dict[tuple[Any, ...], list[Replica]] = {}
    for replica in replicas:
        groups.setdefault(replica.settings.batching_key, []).append(replica)
    return [
        members[first : first + (at_once or len(members))]
        for members in groups.values()
        for first in range(0, len(members), at_once or len(members))
    ]


def grouped_for(
    replicas: Sequence[Replica], model: Model, data: Prepared, execution: Execution
) -> list[list[Replica]]:
    """`grouped`, with as many replicas in a group as the device takes.

    If frozen tensors differ between seeds, each replica is a group, because a group shares its frozen
    tensors.
    """
    at_once = execution.replicas_at_once
    if replicas and at_once != 1:
        seeds = sorted({replica.seed for replica in replicas})[:2]
        first, *others = initial_nets(seeds, model, replicas[0].settings.input_shape(data.input_shape), data)
        trained = {name for name, value in first.named_parameters() if value.requires_grad}
        fixed = {name: value for name, value in first.state_dict().items() if name not in trained}
        for other in (net.state_dict() for net in others):
            if not all(torch.equal(value, other[name]) for name, value in fixed.items()):
                at_once = 1
    return grouped(replicas, at_once)


def make_task(
    members: Sequence[Replica],
    model: Model,
    reproducible: bool,
    data: Prepared,
    execution: Execution,
    noise: Noise | None = None,
) -> Task:
    """Task with each replica's initial weights, data on the device, and random streams.

    ``noise``: kind of the streams' noise; None: the default of `Streams`.
    """
    device = execution.device
    train, public = data.splits["train"], data.splits["public"]
    shape = members[0].settings.input_shape(data.input_shape)
    nets = initial_nets([replica.seed for replica in members], model, shape, data)
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
        streams=Streams([replica.name for replica in members], reproducible, device, noise),
        execution=execution,
    )


def accuracy(
    predict: Predict,
    replicas: int,
    split: Split,
    execution: Execution,
    keep: Callable[[Tensor], object] = lambda found: None,
) -> Tensor:
    """(R,) share of a split's inputs that ``predict`` classifies correctly, for each of ``replicas``.

    For a numeric target in [0, 1], it is one minus the mean absolute error. ``keep`` is called with the
    (R, B) predictions of each batch.
    """
    correct = torch.zeros(replicas, dtype=torch.float64, device=execution.device)
    for start, inputs in batches(split, replicas, execution):
        labels = torch.from_numpy(np.array(split.labels[start : start + len(inputs)])).to(execution.device)
        with torch.no_grad():
            found = predict(inputs, start)
            keep(found)
            right = 1 - (found - labels).abs() if labels.is_floating_point() else found == labels
            correct += right.sum(1)
    return correct / len(split)


def batches(split: Split, replicas: int, execution: Execution) -> Iterator[tuple[int, Tensor]]:
    """First position and inputs (B, ...) of each batch of a split; B is smaller for more ``replicas``."""
    size = min(2000, execution.examples_at_once(replicas))
    for start in range(0, len(split), size):
        yield start, torch.from_numpy(np.array(split.inputs[start : start + size])).to(execution.device)


def train_group(
    members: list[Replica], context: Context, number: int, groups: int, stop_signal: StopSignal
) -> Group:
    """Train a group of replicas that share their steps, from their last checkpoint on.

    ``number`` is the group's position (from 0) among ``groups`` groups, to show progress.

    Raises:
        Stopped: ``stop_signal`` returned a signal. A checkpoint was written, from which the next call
            continues.
    """
    execution, data, show = context.execution, context.data, context.show
    path = context.checkpoint / f"{digest_json([replica.name for replica in members])[7:19]}.pt"
    task = make_task(members, context.model, context.reproducible, data, execution)
    method = build_method(
        context.method, task, [replica.settings for replica in members], context.model.normalization
    )
    settings, examples = members[0].settings, len(task.labels)
    steps = settings.total_steps(examples)
    validation = data.splits["validation"]
    resumed = checkpoints.restore(path, execution.device)
    resumed = resumed or Checkpoint(method.init(), 0, [], 0.0, time.time())
    if resumed.entropy is not None:
        task.streams.entropy = bytes.fromhex(resumed.entropy)
    entropy = task.streams.entropy.hex() if method.noise_drawn_once else None
    guarantees = tuple(method.guarantee(replica) for replica in range(len(members)))
    if method.noise_drawn_once and resumed.done == 0:
        checkpoints.save(path, replace(resumed, entropy=entropy))
    state, history, validation_accuracy, saved_checkpoint = resumed.state, resumed.history, None, resumed
    started_at = saved_at = shown_at = time.monotonic()
    cpu_started_at = time.process_time()
    for step in range(resumed.done, steps):
        with torch.no_grad():
            state, metrics = method.step(state, step)
        steps_done, current_time = step + 1, time.monotonic()
        epoch = steps_done * settings.batch / examples
        is_logged = steps_done == steps or (
            not context.final_only and settings.logs_after(steps_done, examples)
        )
        if is_logged or current_time - shown_at >= SHOW_EVERY:
            values = {name: value.tolist() for name, value in metrics.items()}
            if is_logged:
                if len(validation):
                    with torch.no_grad():
                        network = method.network(method.model(state), 0)
                    accuracies = accuracy(method.predictor(network), len(members), validation, execution)
                    values["validation_accuracy"] = accuracies.tolist()
                    validation_accuracy = float(np.mean(values["validation_accuracy"]))
                history += [
                    (replica.level, replica.seed, steps_done, epoch, name, column[index])
                    for name, column in sorted(values.items())
                    for index, replica in enumerate(members)
                ]
            show(
                Progress(
                    group=number,
                    groups=groups,
                    step=steps_done,
                    steps=steps,
                    epoch=epoch,
                    logged=is_logged,
                    guarantees=guarantees,
                    reproducible=context.reproducible,
                    train_loss=float(np.mean(values["train_loss"])),
                    validation_accuracy=validation_accuracy,
                    seconds_left=(current_time - started_at)
                    / (steps_done - resumed.done)
                    * (steps - steps_done),
                )
            )
            shown_at = current_time
        stopped_by = stop_signal()
        checkpoint_due = stopped_by is not None or time.monotonic() - saved_at >= context.checkpoint_every
        if steps_done == steps or (checkpoint_due and method.resumable(steps_done)):
            seconds = resumed.seconds + time.monotonic() - started_at
            cpu_seconds = resumed.cpu_seconds + time.process_time() - cpu_started_at
            saved_checkpoint = Checkpoint(
                state, steps_done, history, seconds, resumed.started, cpu_seconds, entropy
            )
            checkpoints.save(path, saved_checkpoint)
            saved_at = time.monotonic()
            if stopped_by is not None:
                progress = f"group {number + 1} of {groups}, step {steps_done} of {steps}"
                raise Stopped(stopped_by, f"stopped after {progress}; the same command goes on from there")
    times = (saved_checkpoint.seconds, saved_checkpoint.started, time.time(), saved_checkpoint.cpu_seconds)
    return Group(tuple(members), method, state, history, steps, *times)
