"""Golden values: what is kept of the first three steps, and how steps taken now are compared with them.

One file a method, `METHOD.json`. Of every kind of replica it has: the metrics of each step; of every group of
tensors in the state how far each has moved, as its norm and its projection on random signs, in the order of
the tensors' names; and the classes that are predicted afterwards. A projection moves with every entry, and with
its sign.

Machines add float32 numbers in different orders. When golden values are recorded, the same steps are taken in
three ways that round differently: with and without oneDNN, and under `vmap`. Where these part within three
steps (batch norm on eight examples, behind ReLU), as many steps are kept as they agree on; a tensor that
rounding alone moves even in one step, as Adam moves a bias whose gradient is 0, is `null` and isn't compared.
"""

import json
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pipeline.params import Settings
from tests.golden.steps import CPU, STEPS, Kind, Steps, take

TOLERANCE = 1e-3  # of a value's size: ten times what the three ways may differ by, so that it holds anywhere
AGREEMENT = TOLERANCE / 10
FLOOR = 1e-5  # of the size of a tensor's group: what moves less by a gradient of 0 is rounding
LAST = 10  # times what float32 can't hold of a tensor that hardly moves
DIGITS = 6
CLASSES = 1  # of the predicted ones may differ: two of a network's outputs may be all but equal


def path_of(method: str) -> Path:
    """Where a method's golden values lie."""
    return Path(__file__).with_name(f"{method}.json")


def read(method: str) -> dict[str, Any]:
    """A method's golden values, by the name of the kind; none where there is no file."""
    path = path_of(method)
    values: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return values


def write(method: str, values: dict[str, Any]) -> None:
    """Write a method's golden values, a list a line."""
    first, *lists = json.dumps(values, indent=1).split("[")
    split = [one.partition("]") for one in lists]
    text = first + "".join(f"[{' '.join(inside.split())}]{rest}" for inside, _, rest in split)
    path_of(method).write_text(text + "\n", encoding="utf-8")


def record(kind: Kind, settings: Settings) -> dict[str, Any]:
    """Golden values of a kind: of as many steps as different ways of rounding agree on, and at least one."""
    kept: dict[str, Any] = {}
    for count in range(STEPS, 0, -1):
        kept = _values(kind, take(kind, settings, count))
        parted = {
            name for steps in _ways(kind, settings, count) for name, _ in differences(kept, steps, AGREEMENT)
        }
        if not parted:
            return kept
    for group, tensors in kept["tensors"].items():
        for place, name in enumerate(sorted(take(kind, settings, 1).moved[group])):
            if f"{group}/{name}" in parted:
                tensors["norms"][place] = tensors["projections"][place] = None
    kept["metrics"] = {name: value for name, value in kept["metrics"].items() if name not in parted}
    return kept


def _ways(kind: Kind, settings: Settings, count: int) -> Iterator[Steps]:
    """The same steps, rounded differently."""
    with torch.backends.mkldnn.flags(enabled=False):
        yield take(kind, settings, count)
    yield take(kind, settings, count, replace(CPU, replicas_at_once=None))


def _values(kind: Kind, steps: Steps) -> dict[str, Any]:
    return {
        "row": kind.key,
        "steps": len(next(iter(steps.metrics.values()))),
        "metrics": {name: _rounded(_summary(value)) for name, value in steps.metrics.items()},
        "tensors": {
            group: {
                "norms": _rounded([float(value.norm()) for value in tensors.values()]),
                "projections": _rounded([_projection(value) for value in tensors.values()]),
            }
            for group, tensors in steps.moved.items()
            if tensors
        },
        "classes": steps.classes,
    }


def differences(
    golden: dict[str, Any], steps: Steps, tolerance: float = TOLERANCE
) -> Iterator[tuple[str, float]]:
    """Whatever of the steps isn't as it was: its name, and by how much, relative to its size."""
    if missing := golden["metrics"].keys() - steps.metrics.keys():
        yield f"no metric {', '.join(sorted(missing))}", float("inf")
        return
    for name, was in golden["metrics"].items():
        here = _summary(steps.metrics[name])
        size = max(map(abs, (*was, *here)))
        gap = max(abs(one - other) for one, other in zip(was, here, strict=True))
        if not gap <= tolerance * size:
            yield name, gap / size
    moved = {group: tensors for group, tensors in steps.moved.items() if tensors}
    sizes = {group: len(kept["norms"]) for group, kept in golden["tensors"].items()}
    if sizes != {group: len(tensors) for group, tensors in moved.items()}:
        yield "other tensors in the state", float("inf")
        return
    for group, tensors in moved.items():
        kept = golden["tensors"][group]
        floor = FLOOR * float(torch.stack([value.norm() for value in tensors.values()]).norm())
        for place, (name, value) in enumerate(tensors.items()):
            if kept["norms"][place] is None:
                continue
            norms, projections = (kept["norms"][place], float(value.norm())), (
                kept["projections"][place], _projection(value)
            )  # fmt: skip
            gap = max(abs(one - other) for one, other in (norms, projections))
            if not gap <= tolerance * max(norms) + max(floor, LAST * steps.rounding[group][name]):
                yield f"{group}/{name}", gap / max(norms)
    others = sum(one != other for one, other in zip(golden["classes"], steps.classes, strict=True))
    if others > CLASSES:
        yield "predicted classes", others / len(steps.classes)


def _summary(value: Tensor) -> list[float]:
    """A number a step; of a metric that is a tensor at each step, its norm."""
    return [float(one.norm() if one.dim() else one) for one in value]


def _projection(value: Tensor) -> float:
    return float(value @ _signs(1 << max(0, len(value) - 1).bit_length())[: len(value)])


@cache
def _signs(size: int) -> Tensor:
    drawn = np.random.default_rng(0).integers(0, 2, size, dtype=np.int8)
    return torch.from_numpy(2.0 * drawn - 1)


def _rounded(values: list[float]) -> list[float]:
    return [float(f"{value:.{DIGITS}g}") for value in values]
