"""The first three steps of every kind of replica, seeded, on a few made-up examples.

A kind is a method with a model, the options that change what is computed, and the shape of its inputs: rows
whose settings differ in numbers alone share one. Lengths and batches are cut down to three steps of a few
examples; all else is as the first row of the kind has it.
"""

import math
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pipeline.data.catalog import CATALOG
from pipeline.data.prepared import Prepared, Split
from pipeline.methods.base import Execution, Method, Relevances, Task
from pipeline.methods.registry import build_method, build_net
from pipeline.methods.settings import MethodSettings
from pipeline.params import Row, Settings
from pipeline.pretrained.starts import features_shape
from pipeline.training.loop import Replica, make_task

STEPS = 3
BATCH, EXAMPLES, PUBLIC = 8, 16, 6
TOKENS, VOCABULARY = 12, 50
CLASSES = 10
CPU = Execution(torch.device("cpu"), replicas_at_once=1, physical=64)
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
    "local_steps": 2,
    "public_examples": PUBLIC - 1,
    "noise_batch": 2 * BATCH,
    "sparsify": 1,
}
LAPLACE_EPSILON = 1000.0  # of noise on every input, which leaves nothing of them at 8


@dataclass(frozen=True)
class Kind:
    """A kind of replica, and the first row and level that has it."""

    name: str
    key: str
    row: Row
    level: MethodSettings

    @property
    def numbers(self) -> int:
        """How many settings that set a number aren't at their default, nor 0."""
        fields = type(self.level).model_fields
        return sum(
            getattr(self.level, name) not in (fields[name].default, 0) for name in NUMBERS if name in fields
        )


def kinds(settings: Settings) -> dict[str, dict[str, Kind]]:
    """Every kind that a row has, by method and name; of its rows the one that sets most numbers itself."""
    every: dict[str, dict[str, Kind]] = {}
    for key, row in settings.rows.items():
        for level in row.resolved:
            kind = Kind(_name(row, level, settings), key, row, level)
            known = every.setdefault(row.method, {}).setdefault(kind.name, kind)
            if kind.numbers > known.numbers:
                every[row.method][kind.name] = kind
    return every


def _name(row: Row, level: MethodSettings, settings: Settings) -> str:
    model = row.model.model_dump(exclude_defaults=True, exclude={"epsilon"})
    words = [model.pop("name"), *(f"{name} {value}" for name, value in model.items())]
    shape = _shape(row, settings)
    words.append("texts" if shape is None else "x".join(map(str, shape)))
    if row.data in settings.starts:
        words.append("from a start")
    if row.data in settings.relevances:
        words.append(f"relevances of {settings.relevances[row.data].of}")
    if not level.private and row.method != "noisy_weights":
        words.append("not private")
    for name, field in type(level).model_fields.items():
        value = getattr(level, name)
        if name in NUMBERS or value == field.default:
            continue
        words.append(name if _plain(value) else f"{name} {value}")
    return ", ".join(words)


def _plain(value: Any) -> bool:
    """Whether a setting's value is a number like any other."""
    return type(value) in (int, float) and value not in (0, 1, math.inf)


def _shape(row: Row, settings: Settings) -> tuple[int, ...] | None:
    """Of one example as stored; None: a text."""
    if settings.has_features(row.data):
        return features_shape(row.model)
    raw = settings.split(row.data).raw
    return CATALOG[settings.raw[raw].of or raw].shape


def made_up(kind: Kind, settings: Settings, folder: Path) -> Prepared:
    """Random examples of the shape of the kind's, with weights to start from if it wants such."""
    generator, shape = np.random.default_rng(0), _shape(kind.row, settings)

    def split(count: int) -> Split:
        if shape is None:
            inputs = generator.integers(1, VOCABULARY, (count, TOKENS), dtype=np.int32)
        elif len(shape) == 1:
            inputs = generator.random((count, *shape), dtype=np.float32)
        else:
            inputs = generator.integers(0, 256, (count, *shape), dtype=np.uint8)
        return Split(inputs, np.arange(count) % CLASSES)

    text = {"text": {"vocabulary": VOCABULARY}} if shape is None else {}
    manifest = {"classes": [str(one) for one in range(CLASSES)], "digests": {}, "raw": {}, **text}
    data = Prepared("made up", {"train": split(EXAMPLES), "public": split(PUBLIC)}, manifest)
    if kind.row.data not in settings.starts:
        return data
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        net = build_net(kind.row.model, data.input_shape, 2 * CLASSES)
    start = folder / "start.npz"
    np.savez(start, **{name: value.numpy() for name, value in net.state_dict().items()})
    return replace(data, start=start)


def small(level: MethodSettings) -> MethodSettings:
    """The level's settings, cut down to three steps of a few examples."""
    cut = {name: value for name, value in ALWAYS.items() if name in type(level).model_fields}
    cut |= {name: value for name, value in SMALL.items() if _plain(getattr(level, name, None))}
    if hasattr(level, "variant") and level.private:
        cut["epsilon"] = LAPLACE_EPSILON
    return type(level).model_validate(level.model_dump() | cut)


def method_of(kind: Kind, settings: Settings, execution: Execution = CPU) -> tuple[Method, Task]:
    """The method over one replica of the kind, and what it learns."""
    level = small(kind.level)
    with tempfile.TemporaryDirectory() as folder:
        data = made_up(kind, settings, Path(folder))
        replica = Replica(kind.row.level(kind.level), 0, level)
        task = make_task([replica], kind.row.model, True, data, execution)
    if (relevance := settings.relevances.get(kind.row.data)) is not None:
        mean = torch.from_numpy(np.random.default_rng(0).random(task.inputs.shape[1:]))
        public = relevance.of == "public"
        task = replace(task, relevance=Relevances(mean, EXAMPLES, public=public, informed=not public))
    return build_method(kind.row.method, task, [level], kind.row.model.normalization), task


@dataclass(frozen=True)
class Steps:
    """What the first steps made of one replica."""

    metrics: dict[str, Tensor]  # (steps,) or (steps, ...) each
    # by group of the state: how far each tensor has moved from the start, from 0 where it wasn't there
    moved: dict[str, dict[str, Tensor]]
    rounding: dict[str, dict[str, float]]  # of each of these tensors: what float32 loses of its norm
    classes: list[int]  # that the model after them predicts for the training inputs


@torch.no_grad()
def take(kind: Kind, settings: Settings, count: int = STEPS, execution: Execution = CPU) -> Steps:
    """Take the first ``count`` steps of a kind."""
    method, task = method_of(kind, settings, execution)
    state = begun = method.init()
    noted: dict[str, list[Tensor]] = {}
    for step in range(count):
        state, metrics = method.step(state, step)
        for name, value in metrics.items():
            noted.setdefault(name, []).append(value[0].double())
    moved: dict[str, dict[str, Tensor]] = {}
    rounding: dict[str, dict[str, float]] = {}
    for group, tensors in state.items():
        moved[group], rounding[group] = {}, {}
        for name, value in sorted(tensors.items()):
            after, before = value[0].double().flatten(), begun.get(group, {}).get(name)
            same = before is not None and before.shape == value.shape
            moved[group][name] = after - before[0].double().flatten() if same else after
            rounding[group][name] = float(after.norm()) * torch.finfo(torch.float32).eps
    network = method.network(method.model(state), 0)
    classes = method.predict(network, task.inputs)[0].tolist()
    metrics = {name: torch.stack(values) for name, values in sorted(noted.items())}
    return Steps(metrics, moved, rounding, classes)
