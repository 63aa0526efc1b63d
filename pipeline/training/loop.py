"""Training loop: steps of one training, their history, and resuming."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dprepro.errors import Stopped, StopSignal
from dprepro.fields import Noise
from dprepro.noise.streams import Streams
from dprepro.pipeline.data.prepared import Prepared, Split
from dprepro.pipeline.files import digest_json
from dprepro.pipeline.methods.base import Execution, Method, Predict, State, Task
from dprepro.pipeline.methods.settings import MethodSettings
from dprepro.pipeline.methods.spending import Guarantee
from dprepro.pipeline.models.model import Model
from dprepro.pipeline.pretrained.loading import initial_net, read_relevance
from dprepro.pipeline.results.schema import is_guess
from dprepro.pipeline.training.checkpoints import Checkpoint

SHOW_EVERY = 1.0  # seconds between updates of the progress


@dataclass(frozen=True, eq=False)
class SeedRun:
    """A training to do: a level with its settings, and a seed."""

    level: str
    seed: int
    settings: MethodSettings

    @property
    def key(self) -> tuple[str, int]:
        """Level and seed, which identify the training in its row."""
        return self.level, self.seed

    @property
    def name(self) -> str:
        """Name of the training, which also names its random streams."""
        return f"{self.level}/seed={self.seed}"


@dataclass(frozen=True)
class Progress:
    """Progress of a training."""

    name: str
    number: int  # position, from 0, among the trainings of the command
    trainings: int
    step: int
    steps: int
    epoch: float
    logged: bool  # whether the history got a line
    guarantee: Guarantee  # for the epsilon so far
    reproducible: bool  # whether noise is seeded, so that no guarantee holds
    train_loss: float  # on the sample of the last step
    validation_accuracy: float | None  # as last measured
    is_guess: bool  # whether guessing has that accuracy too
    seconds_left: float


Show = Callable[[Progress], None]


@dataclass(frozen=True)
class FinishedTraining:
    """Result of a training."""

    run: SeedRun
    method: Method
    state: State
    history: list[tuple[Any, ...]]
    steps: int
    seconds: float
    started: float
    ended: float
    cpu_seconds: float  # processor time


@dataclass(frozen=True)
class Context:
    """Common settings of trainings."""

    model: Model
    reproducible: bool  # whether noise and samples are seeded too
    data: Prepared
    execution: Execution  # device and batch sizes of the computation
    show: Show  # called at each line of the history, and about once a second in between
    checkpoint: Path  # folder of checkpoints
    checkpoint_every: float  # seconds between checkpoints: the most that a kill loses
    final_only: bool = False  # whether validation accuracy is measured after the last step only


def make_task(
    run: SeedRun,
    model: Model,
    reproducible: bool,
    data: Prepared,
    execution: Execution,
    noise: Noise | None = None,
) -> Task:
    """Task with the run's initial weights, data on the device, and random streams.

    ``noise``: kind of the streams' noise; None: the default of `Streams`.
    """
    device = execution.device
    train, public = data.splits["train"], data.splits["public"]
    net = initial_net(run.seed, model, run.settings.input_shape(data.input_shape), data).to(device)
    return Task(
        net=net,
        parameters={
            # copies, because the network keeps its own weights
            name: value.detach().clone()
            for name, value in net.named_parameters()
            if value.requires_grad
        },
        inputs=torch.from_numpy(np.array(train.inputs)).to(device),
        labels=torch.from_numpy(np.array(train.labels)).to(device),
        public=torch.from_numpy(np.array(public.inputs)).to(device),
        public_labels=torch.from_numpy(np.array(public.labels)).to(device),
        relevance=read_relevance(data, device),
        streams=Streams(run.name, reproducible, device, noise),
        execution=execution,
        group=data.group,
    )


def accuracy(
    predict: Predict,
    split: Split,
    execution: Execution,
    keep: Callable[[Tensor], object] = lambda found: None,
) -> float:
    """Share of a split's inputs that ``predict`` classifies correctly.

    For a numeric target in [0, 1], it is one minus the mean absolute error. ``keep`` is called with the
    (B,) predictions of each batch.
    """
    correct = torch.zeros((), dtype=torch.float64, device=execution.device)
    for start, inputs in batches(split, execution):
        labels = torch.from_numpy(np.array(split.labels[start : start + len(inputs)])).to(execution.device)
        with torch.no_grad():
            found = predict(inputs, start)
            keep(found)
            right = 1 - (found - labels).abs() if labels.is_floating_point() else found == labels
            correct += right.sum()
    return correct.item() / len(split)


def _is_guess(share: float, split: Split) -> bool:
    """Return whether the most frequent class, or the median of a numeric target, has the accuracy too."""
    labels = np.array(split.labels)
    if labels.dtype.kind == "f":
        return share <= 1 - float(np.abs(labels - np.median(labels)).mean())
    return is_guess(round(share * len(labels)), len(labels), int(np.bincount(labels).max()))


def batches(split: Split, execution: Execution) -> Iterator[tuple[int, Tensor]]:
    """First position and inputs (B, ...) of each batch of a split."""
    size = min(2000, execution.physical)
    for start in range(0, len(split), size):
        yield start, torch.from_numpy(np.array(split.inputs[start : start + size])).to(execution.device)


def train_run(
    run: SeedRun, context: Context, number: int, trainings: int, stop_signal: StopSignal
) -> FinishedTraining:
    """Train from the last checkpoint on.

    ``number`` is the run's position (from 0) among ``trainings``, to show progress.

    Raises:
        Stopped: ``stop_signal`` returned a signal. A checkpoint was written, from which the next call
            continues.
    """
    execution, data, show = context.execution, context.data, context.show
    path = context.checkpoint / f"{digest_json(run.name)[7:19]}.pt"
    settings = run.settings
    task = make_task(run, context.model, context.reproducible, data, execution)
    method = settings.build_method(task, context.model.normalization)
    examples = len(task.labels)
    steps = settings.total_steps(examples)
    validation = data.splits["validation"]
    resumed = Checkpoint.restore(path, execution.device)
    resumed = resumed or Checkpoint(method.init(), 0, [], 0.0, time.time())
    if resumed.entropy is not None:
        task.streams.entropy = bytes.fromhex(resumed.entropy)
    entropy = task.streams.entropy.hex() if method.noise_drawn_once else None
    guarantee = method.guarantee()
    if method.noise_drawn_once and resumed.done == 0:
        replace(resumed, entropy=entropy).save(path)
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
            values = {name: value.item() for name, value in metrics.items()}
            if is_logged:
                if len(validation):
                    with torch.no_grad():
                        network = method.network(method.model(state), 0)
                    validation_accuracy = accuracy(method.predictor(network), validation, execution)
                    values["validation_accuracy"] = validation_accuracy
                history += [(steps_done, epoch, name, value) for name, value in sorted(values.items())]
            show(
                Progress(
                    name=run.name,
                    number=number,
                    trainings=trainings,
                    step=steps_done,
                    steps=steps,
                    epoch=epoch,
                    logged=is_logged,
                    guarantee=guarantee,
                    reproducible=context.reproducible,
                    train_loss=values["train_loss"],
                    validation_accuracy=validation_accuracy,
                    is_guess=validation_accuracy is not None and _is_guess(validation_accuracy, validation),
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
            saved_checkpoint.save(path)
            saved_at = time.monotonic()
            if stopped_by is not None:
                progress = f"training {number + 1} of {trainings}, step {steps_done} of {steps}"
                raise Stopped(stopped_by, f"stopped after {progress}; the same command goes on from there")
    times = (saved_checkpoint.seconds, saved_checkpoint.started, time.time(), saved_checkpoint.cpu_seconds)
    return FinishedTraining(run, method, state, history, steps, *times)
