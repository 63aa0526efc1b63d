"""The loop: replicas trained together, their history, checkpoints and resuming.

A run leaves ``runs/ROW/``: ``run.json`` (`Run`: what was trained, what it spent, on what), ``history.csv``
and ``weights.pt`` (every parameter with a leading replica dimension, in the order of ``run.json``). It appears as
a whole when the last step is done. Until then a checkpoint lies in ``.dprepro/checkpoints/``, outside DVC's
outs, under a name made of the row and the digest of everything that decides its numbers.
"""

import csv
import io
import os
import platform
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from filelock import FileLock, Timeout
from torch import Tensor

from pipeline import provenance
from pipeline.data.prepared import Prepared
from pipeline.errors import UserError, writing
from pipeline.files import digest_json, write_bytes, write_text
from pipeline.methods.base import Execution, Guarantee, Method, State, Task
from pipeline.methods.registry import build_method, build_net
from pipeline.privacy.accounting import rdp_spent
from pipeline.privacy.randomness import Streams, initial_seed
from pipeline.records import HISTORY_COLUMNS, Provenance
from pipeline.settings import DpsgdSettings, Model, Row, Settings, Strict

RUNS = Path("runs")
CHECKPOINTS = Path(".dprepro/checkpoints")


class Trained(Strict):
    """One replica of a finished run."""

    level: str
    seed: int
    settings: DpsgdSettings
    steps: int
    # the guarantee, in numbers from which the ledger is computed
    noise_multiplier: float | None
    rate: float | None
    delta: float | None
    claimed_by: str | None
    broken: str | None
    uncounted: list[str]
    seconds: float
    started: float
    ended: float


class Run(Strict):
    """`run.json`: everything about a run but its numbers' curves and weights."""

    row: str
    model: Model
    method: str
    data: str
    replicas: list[Trained]
    provenance: Provenance


@dataclass(frozen=True)
class Replica:
    """What to train: a level's settings under a name, and a seed."""

    level: str
    seed: int
    settings: DpsgdSettings

    @property
    def name(self) -> str:
        """Name of its random streams."""
        return f"{self.level}/seed={self.seed}"


@dataclass(frozen=True)
class Progress:
    """Where training stands, for whoever shows it."""

    group: int
    groups: int
    replicas: int
    step: int
    steps: int
    epoch: float
    epsilon: tuple[float, float] | None  # least and most spent so far by RDP; None: not private
    train_loss: float
    validation_accuracy: float
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
    return [
        Replica(f"epsilon={own.epsilon:g}", seed, own) for own in row.resolved for seed in range(row.seeds)
    ]


def train(
    key: str,
    settings: Settings,
    data: Prepared,
    execution: Execution,
    show: Show,
    checkpoint_every: float,
    root: Path = Path(),
) -> Path:
    """Train a row and write ``runs/KEY``; an interrupted run continues from its checkpoint.

    Args:
        key: the row.
        settings: all settings.
        data: the row's prepared data.
        execution: device and how to compute on it.
        show: called at least once an epoch.
        checkpoint_every: seconds between checkpoints: what a kill loses at most.
        root: the folder of params.yaml.

    Raises:
        UserError: another process trains this row; the disk can't be written; the data don't fit.
    """
    row = settings.row(key)
    source = provenance_of(key, settings, data, execution)
    identity = digest_json({"config": source.config, "code": source.code, "data": source.data})
    checkpoint = root / CHECKPOINTS / f"{key}-{identity[7:19]}"
    with alone(checkpoint):
        trained = train_replicas(
            replicas(row), row.model, row.method, row.reproducible, data, execution, show,
            checkpoint, checkpoint_every,
        )  # fmt: skip
        run = Run(
            row=key,
            model=row.model,
            method=row.method,
            data=row.data,
            replicas=[_trained(group, index) for group in trained for index in range(len(group.replicas))],
            provenance=source,
        )
        folder = _write_run(root / RUNS / key, run, trained)
        shutil.rmtree(checkpoint, ignore_errors=True)
    return folder


def train_replicas(
    wanted: Sequence[Replica],
    model: Model,
    method: str,
    reproducible: bool,
    data: Prepared,
    execution: Execution,
    show: Show,
    checkpoint: Path,
    checkpoint_every: float,
) -> list[Group]:
    """Train replicas of one model, those together that can share a batch shape and a number of steps."""
    groups: dict[Any, list[Replica]] = {}
    for replica in wanted:
        own = replica.settings
        groups.setdefault((own.batch, own.epochs, own.private, own.statistics_weight), []).append(replica)
    trained = []
    for number, members in enumerate(groups.values()):
        task = make_task(members, model, reproducible, data, execution)
        trainer = build_method(method, task, [replica.settings for replica in members], model.normalization)
        path = checkpoint / f"group{number}.pt"
        trained.append(
            _train_group(members, trainer, task, data, path, checkpoint_every, show, (number, len(groups)))
        )
    return trained


def make_task(
    members: Sequence[Replica], model: Model, reproducible: bool, data: Prepared, execution: Execution
) -> Task:
    """Networks with each replica's initial weights, the data on the device, and random streams."""
    device = execution.device
    train, public = data.splits["train"], data.splits["public"]
    nets = []
    for replica in members:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(initial_seed(replica.seed))
            nets.append(build_net(model, train.inputs.shape[1:], data.classes))
    parameters = {
        name: torch.stack([dict(net.named_parameters())[name].detach() for net in nets]).to(device)
        for name, _ in nets[0].named_parameters()
    }
    return Task(
        net=nets[0].to(device).requires_grad_(False),
        parameters=parameters,
        inputs=torch.from_numpy(np.array(train.inputs)).to(device),
        labels=torch.from_numpy(np.array(train.labels)).to(device),
        public=torch.from_numpy(np.array(public.inputs)).to(device),
        streams=Streams([replica.name for replica in members], reproducible, device),
        execution=execution,
    )


def accuracy(
    method: Method, state: State, inputs: np.ndarray, labels: np.ndarray, device: torch.device
) -> Tensor:
    """(R,) share of ``inputs`` classified as ``labels``."""
    right: Tensor | float = 0.0
    for start in range(0, len(labels), 2000):
        part = torch.from_numpy(np.array(inputs[start : start + 2000])).to(device)
        truth = torch.from_numpy(np.array(labels[start : start + 2000])).to(device)
        with torch.no_grad():
            right = right + (method.predict(state, part) == truth).double().sum(1)
    assert isinstance(right, Tensor)
    return right / len(labels)


def _train_group(
    members: Sequence[Replica],
    method: Method,
    task: Task,
    data: Prepared,
    path: Path,
    checkpoint_every: float,
    show: Show,
    place: tuple[int, int],
) -> Group:
    own = members[0].settings
    examples = len(task.labels)
    steps = own.steps(examples)
    validation = data.splits["validation"]
    guarantees = [method.guarantee(replica, steps) for replica in range(len(members))]
    saved = _restore(path, task.execution.device)
    state, first, history, before, started = saved or (method.init(), 0, [], 0.0, time.time())
    begun = saved_at = time.monotonic()
    for step in range(first, steps):
        with torch.no_grad():
            state, metrics = method.step(state, step)
        done, seconds = step + 1, before + time.monotonic() - begun
        # the first step of each epoch's end, and the last: a curve point an epoch
        ends_epoch = int(done * own.batch / examples) > int(step * own.batch / examples) or done == steps
        if ends_epoch:
            values = {name: value.tolist() for name, value in metrics.items()}
            values["validation_accuracy"] = accuracy(
                method, state, validation.inputs, validation.labels, task.execution.device
            ).tolist()
            spent = [_spent(guarantee, done) for guarantee in guarantees]
            if own.private:
                values["epsilon_spent"] = spent
            epoch = done * own.batch / examples
            history += [
                (replica.level, replica.seed, done, epoch, name, column[index])
                for name, column in sorted(values.items())
                for index, replica in enumerate(members)
            ]
            show(
                Progress(
                    *place,
                    len(members),
                    done,
                    steps,
                    epoch,
                    (min(spent), max(spent)) if own.private else None,
                    float(np.mean(values["train_loss"])),
                    float(np.mean(values["validation_accuracy"])),
                    (time.monotonic() - begun) / (done - first) * (steps - done),
                )
            )
        if done == steps or time.monotonic() - saved_at >= checkpoint_every:
            _save(path, state, done, history, before + time.monotonic() - begun, started)
            saved_at = time.monotonic()
    seconds = before + time.monotonic() - begun
    return Group(tuple(members), method, state, history, steps, seconds, started, time.time())


def _spent(guarantee: Guarantee, steps: int) -> float:
    if guarantee.noise_multiplier is None or guarantee.rate is None or guarantee.delta is None:
        return float("inf")
    return rdp_spent(guarantee.rate, guarantee.noise_multiplier, steps, guarantee.delta)


# -- checkpoints -------------------------------------------------------------------------------------


def _save(path: Path, state: State, done: int, history: list, seconds: float, started: float) -> None:
    """State of training, and never of the random streams: those are derived anew."""
    content = io.BytesIO()
    torch.save(
        {"state": state, "done": done, "history": history, "seconds": seconds, "started": started}, content
    )
    write_bytes(path, content.getvalue())


def _restore(path: Path, device: torch.device) -> tuple[State, int, list, float, float] | None:
    if not path.exists():
        return None
    saved = torch.load(path, map_location=device, weights_only=True)
    return saved["state"], saved["done"], saved["history"], saved["seconds"], saved["started"]


@contextmanager
def alone(checkpoint: Path) -> Iterator[None]:
    """Hold the row's lock: a killed `dvc` leaves its trainer running, and the next one must not join it."""
    with writing(checkpoint):
        checkpoint.mkdir(parents=True, exist_ok=True)
    lock = FileLock(checkpoint.with_suffix(".lock"))
    try:
        with lock.acquire(blocking=False):
            yield
    except Timeout as problem:
        raise UserError(
            f"{lock.lock_file}: held by another process that trains this row; wait for it or stop it"
        ) from problem


# -- the run folder ----------------------------------------------------------------------------------


def _trained(group: Group, index: int) -> Trained:
    replica = group.replicas[index]
    spent = group.method.guarantee(index, group.steps)
    return Trained(
        level=replica.level,
        seed=replica.seed,
        settings=replica.settings,
        steps=group.steps,
        noise_multiplier=spent.noise_multiplier,
        rate=spent.rate,
        delta=spent.delta,
        claimed_by=spent.claimed_by,
        broken=spent.broken,
        uncounted=spent.uncounted,
        seconds=group.seconds,
        started=group.started,
        ended=group.ended,
    )


def _write_run(folder: Path, run: Run, groups: Sequence[Group]) -> Path:
    """Write the run beside its place, then rename: nobody sees half a run."""
    temporary = folder.with_name(f".{folder.name}.{os.getpid()}")
    names = groups[0].state["parameters"]
    weights = {name: torch.cat([group.state["parameters"][name].cpu() for group in groups]) for name in names}
    content = io.BytesIO()
    torch.save(weights, content)
    try:
        write_bytes(temporary / "weights.pt", content.getvalue())
        write_text(
            temporary / "history.csv", history_csv([line for group in groups for line in group.history])
        )
        write_text(temporary / "run.json", run.model_dump_json(indent=2) + "\n")
        with writing(folder):
            shutil.rmtree(folder, ignore_errors=True)
            temporary.rename(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return folder


def history_csv(lines: Sequence[tuple[Any, ...]]) -> str:
    """Training curves as CSV, one value a line, sorted by replica, metric and step."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(HISTORY_COLUMNS)
    for level, seed, step, epoch, metric, value in sorted(
        lines, key=lambda line: (line[0], line[1], line[4], line[2])
    ):
        writer.writerow([level, seed, step, f"{epoch:.4f}", metric, f"{value:.6g}"])
    return text.getvalue()


def describe_device(device: torch.device) -> str:
    """The device in words: 'cuda (NVIDIA H200)', 'cpu (2 threads)'."""
    if device.type == "cuda":
        return f"cuda ({torch.cuda.get_device_name(device)})"
    return f"cpu ({platform.machine()}, {torch.get_num_threads()} threads)"


def provenance_of(key: str, settings: Settings, data: Prepared, execution: Execution) -> Provenance:
    """What is about to make a row's numbers."""
    row = settings.row(key)
    revision, dirty = provenance.revision()
    return Provenance(
        config=settings.row_digest(key),
        code=provenance.code_digest(row.method, row.model.name),
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
