"""The first three steps of every kind of training, seeded, on a few made-up examples, in float64.

float32 rounds as the processor's instructions, the threads and the libraries have it, and within three steps
batch norm behind ReLU makes percents of that. In float64 the same steps agree to nine digits everywhere. The
code is the one that trains: weights and inputs are converted, random numbers are those of float32 trainings.

A kind is a method with a model, the options that change what is computed, and the shape of its inputs: rows
whose settings differ in numbers alone share one. Lengths and batches are cut down to three steps of a few
examples; all else is as one row of the kind has it.

Of a large network, whose steps take seconds, one step is taken with few channels and the fewest options; the
options that its rows have are taken for three steps by a small network in its place, with the same
normalisation.
"""

import math
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor

from dprepro.clipping.functional import Tensors
from dprepro.noise.streams import Streams
from dprepro.pipeline.data.prepared import Prepared
from dprepro.pipeline.methods.base import Method, Relevances, Task
from dprepro.pipeline.methods.settings import MethodSettings
from dprepro.pipeline.params import Row, Settings
from dprepro.pipeline.training.loop import SeedRun, make_task
from tests.methods.examples import CPU, random_data, shape_of, with_start
from tests.small_networks import small_networks

STEPS = 3
LARGE, IN_PLACE = {"resnet18", "vgg", "vgg16", "wrn16_4"}, "lenet5"
BATCH, EXAMPLES, PUBLIC = 8, 16, 6
EPS = torch.finfo(torch.float64).eps
CLASSES = 10
# settings that only set a number of a step, whatever they are; one that isn't the default stands for all
NUMBERS = (
    *("batch", "epochs", "steps", "learning_rate", "schedule", "rate_decay", "clip", "clip_decay"),
    *("sigma", "epsilon", "delta", "draws", "scales", "loss_share"),
)
ALWAYS: dict[str, Any] = {"batch": BATCH, "epochs": STEPS * BATCH / EXAMPLES, "steps": STEPS}
# Of what a level has other than 0, 1, infinite or none: short ways, and little noise, so that gradients show
SMALL: dict[str, Any] = {
    "learning_rate": 0.02,
    "sigma": 0.1,
    "epsilon": 8.0,
    "copies": 2,
    "mini_set": 4,
    "noise_batch": 2 * BATCH,
}
LAPLACE_EPSILON = 1000.0  # of noise on every input, which leaves nothing of them at 8


@dataclass(frozen=True)
class Kind:
    """A kind of training, and a row and a level that has it."""

    name: str
    key: str
    row: Row  # with a small network in place of a large one, where the kind is of options
    level: MethodSettings

    @property
    def steps(self) -> int:
        """How many are taken of it."""
        return 1 if self.row.model.name in LARGE else STEPS

    @property
    def rank(self) -> tuple[int, int]:
        """Of trainings of a kind that with the fewest options, and then most numbers of its own, is taken."""
        fields = type(self.level).model_fields
        told = [name for name in NUMBERS if name in fields]
        changed = [name for name in told if getattr(self.level, name) not in (0, fields[name].default)]
        return -len(_options(self.row, self.level)), len(changed)


def kinds_of(key: str, row: Row, level: MethodSettings, settings: Settings) -> list[Kind]:
    """What a row has at a level: one kind; of a large network one of it, and one of the options."""
    network, options = _network(row, settings), _options(row, level)
    if row.model.name not in LARGE:
        return [Kind(", ".join([*network, *options]), key, row, level)]
    plain = {"name": IN_PLACE, "order": "norm_relu", "groups": min(2, row.model.groups)}
    other = row.model_copy(update={"model": row.model.model_copy(update=plain)})
    return [
        Kind(", ".join(network), key, row, level),
        Kind(", ".join([*_network(other, settings), *options]), key, other, level),
    ]


def kinds(settings: Settings) -> dict[str, dict[str, Kind]]:
    """Every kind that a row has, by method and name."""
    every: dict[str, dict[str, Kind]] = {}
    for key, row in settings.rows.items():
        for level in row.resolved:
            for kind in kinds_of(key, row, level, settings):
                known = every.setdefault(row.method, {}).setdefault(kind.name, kind)
                if kind.rank > known.rank:
                    every[row.method][kind.name] = kind
    return every


def _network(row: Row, settings: Settings) -> list[str]:
    """A row's network and its inputs, in words."""
    model = row.model.model_dump(exclude_defaults=True, exclude={"epsilon"})
    words = [model.pop("name"), *(f"{name} {value}" for name, value in model.items())]
    shape = _shape(row, settings)
    words.append("texts" if shape is None else "x".join(map(str, shape)))
    if row.data in settings.starts:
        words.append("from a start")
    if row.data in settings.relevances:
        words.append("relevances of train")
    return words


def _options(row: Row, level: MethodSettings) -> list[str]:
    """The settings that change what is computed, in words."""
    words = [] if level.private or row.method == "noisy_weights" else ["not private"]
    for name, field in type(level).model_fields.items():
        value = getattr(level, name)
        if name in NUMBERS or value == field.default:
            continue
        words.append(name if _plain(value) else f"{name} {value}")
    return words


def _plain(value: Any) -> bool:
    """Whether a setting's value is a number like any other."""
    return type(value) in (int, float) and value not in (0, 1, math.inf)


def _shape(row: Row, settings: Settings) -> tuple[int, ...] | None:
    """Of one example as stored; None: a text."""
    if settings.has_features(row.data):
        return row.model.features_shape
    return shape_of(row, settings)


def made_up(kind: Kind, settings: Settings, folder: Path) -> Prepared:
    """Random examples of the shape of the kind's, with weights to start from if it wants such."""
    data = random_data(_shape(kind.row, settings), {"train": EXAMPLES, "public": PUBLIC}, CLASSES)
    return with_start(data, kind.row.model, folder) if kind.row.data in settings.starts else data


def small(level: MethodSettings) -> MethodSettings:
    """The level's settings, cut down to three steps of a few examples."""
    cut = {name: value for name, value in ALWAYS.items() if name in type(level).model_fields}
    cut |= {name: value for name, value in SMALL.items() if _plain(getattr(level, name, None))}
    if hasattr(level, "variant") and level.private:
        cut["epsilon"] = LAPLACE_EPSILON
    return type(level).model_validate(level.model_dump() | cut)


@small_networks()
def method_of(kind: Kind, settings: Settings) -> tuple[Method, Task]:
    """The method over one training of the kind in float64, and what it learns."""
    level = small(kind.level)
    with tempfile.TemporaryDirectory() as folder, drawn_in_float64():
        data = made_up(kind, settings, Path(folder))
        run = SeedRun(kind.row.level(kind.level), 0, level)
        task = _double(make_task(run, kind.row.model, True, data, CPU))
    if kind.row.data in settings.relevances:
        mean = torch.from_numpy(np.random.default_rng(0).random(task.inputs.shape[1:]))
        task = replace(task, relevance=Relevances(mean, EXAMPLES, informed=True))
    with in_float64():
        return level.build_method(task, kind.row.model.normalization), task


@dataclass(frozen=True)
class Moved:
    """How far a tensor has moved from the start, or from 0 where it wasn't there."""

    norm: float
    projection: float  # on random signs


@dataclass(frozen=True)
class Steps:
    """What the first steps made of one training."""

    metrics: dict[str, list[float]]  # a number a step; of a metric that is a tensor at each step its norm
    # by group of the state, and the tensor's name there; of the model's outputs for the training inputs, too
    moved: dict[str, dict[str, Moved]]


@contextmanager
def in_float64() -> Iterator[None]:
    """Whatever computes in float32 computes in float64 inside; random numbers keep their float32 values."""

    def as_double(method: Callable[..., Tensor]) -> Callable[..., Tensor]:
        return lambda *arguments, **options: method(*arguments, **options).double()

    with ExitStack() as patched:
        patched.callback(torch.set_default_dtype, torch.get_default_dtype())
        torch.set_default_dtype(torch.float64)
        patched.enter_context(patch.object(Tensor, "float", Tensor.double))
        for owner, names in ((Streams, ("normal", "laplace", "uniform")), (Task, ("numbers",))):
            for name in names:
                patched.enter_context(patch.object(owner, name, as_double(getattr(owner, name))))
        yield


@contextmanager
def drawn_in_float64() -> Iterator[None]:
    """Initial weights are drawn in float64 inside, as float32 draws end in bits of the processor."""

    def rounded(method: Callable[..., Tensor]) -> Callable[..., Tensor]:
        def draw(tensor: Tensor, *arguments: Any, **options: Any) -> Tensor:
            return tensor.copy_(method(tensor.double(), *arguments, **options))

        return draw

    with ExitStack() as patched:
        for name in ("uniform_", "normal_", "erfinv_"):
            patched.enter_context(patch.object(Tensor, name, rounded(getattr(Tensor, name))))
        yield


def _double(task: Task) -> Task:
    """The task with weights and inputs in float64."""
    return replace(
        task,
        net=task.net.double(),
        parameters={name: value.double() for name, value in task.parameters.items()},
        inputs=task.inputs.double() if task.inputs.is_floating_point() else task.inputs,
        public=task.public.double() if task.public.is_floating_point() else task.public,
    )


@torch.no_grad()
def take(kind: Kind, settings: Settings, count: int, jitter: bool = False) -> list[Steps]:
    """Take the first ``count`` steps of a kind; returns after each what all so far have made.

    Args:
        kind: what to train.
        settings: of all rows.
        count: how many steps.
        jitter: whether to start from weights each of which is off by what float64 rounds.
    """
    method, task = method_of(kind, settings)
    taken = []
    with in_float64():
        state = begun = method.init()
        if jitter:
            off = {name: value * (1 + EPS * _noise(value)) for name, value in state["parameters"].items()}
            state = state | {"parameters": off}
        metrics: dict[str, list[float]] = {}
        for step in range(count):
            state, noted = method.step(state, step)
            for name, number in _joined(noted).items():
                metrics.setdefault(name, []).append(number)
            network = method.network(method.model(state), 0)
            moved = {
                group: _moved(tensors, begun.get(group, {})) for group, tensors in state.items() if tensors
            }
            moved["outputs"] = _moved({"logits": method.logits(network, task.inputs)}, {})
            taken.append(Steps({name: list(values) for name, values in sorted(metrics.items())}, moved))
    return taken


def _noise(value: Tensor) -> Tensor:
    """Standard normals, one an entry."""
    return torch.from_numpy(np.random.default_rng(1).standard_normal(value.shape))


def _joined(noted: Mapping[str, Tensor]) -> dict[str, float]:
    """A number a metric: of NAME/PLACE, a histogram's bars or a picture's pixels, one for all places."""
    joined: dict[str, float] = {}
    for metric, value in noted.items():
        if metric == "clipped_share":
            continue  # a count of comparisons: the processor's rounding decides ties
        number = float(value.double().norm() if value.dim() else value)
        name, _, place = metric.partition("/")
        joined[name] = math.hypot(joined.get(name, 0.0), number) if place else number
    return joined


def _moved(tensors: Tensors, begun: Tensors) -> dict[str, Moved]:
    moved = {}
    for name, value in sorted(tensors.items()):
        after, before = value.double().flatten(), begun.get(name)
        same = before is not None and before.shape == value.shape
        way = after - before.double().flatten() if same else after
        way = way.nan_to_num(nan=math.nan, posinf=-1.0)  # a bound may be infinite, and has no projection
        signs = _signs(1 << max(0, len(way) - 1).bit_length())[: len(way)]
        moved[name] = Moved(float(way.norm()), float(way @ signs))
    return moved


@cache
def _signs(size: int) -> Tensor:
    drawn = np.random.default_rng(0).integers(0, 2, size, dtype=np.int8)
    return torch.from_numpy(2.0 * drawn - 1)
