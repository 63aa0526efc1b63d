"""Golden values: what is kept of the first three steps, and how steps taken now are compared with them.

One file a method, `METHOD.json`. Of every kind of replica it has: the metrics of each step; of every group of
tensors in the state how far each has moved, as its norm and its projection on random signs, in the order of
the tensors' names; and the classes that are predicted afterwards. A projection moves with every entry, and
with its sign.

Machines add float32 numbers in different orders. When golden values are recorded, the same steps are taken in
three ways that round differently: with and without oneDNN, and from weights that are off by a rounding. Where
these part within three steps (batch norm on eight examples, behind ReLU), as many steps are kept as they
agree on; a tensor that rounding alone moves even in one step, as Adam moves a bias whose gradient is 0, is
`null` and isn't compared.
"""

import json
import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch

from pipeline.params import Settings
from tests.golden.steps import Kind, Steps, take

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
    split = [text.partition("]") for text in lists]
    text = first + "".join(f"[{' '.join(inside.split())}]{rest}" for inside, _, rest in split)
    path_of(method).write_text(text + "\n", encoding="utf-8")


def record(kind: Kind, settings: Settings) -> dict[str, Any]:
    """Golden values of a kind: of as many steps as different ways of rounding agree on, and at least one."""
    plain = list(take(kind, settings, kind.steps))
    with torch.backends.mkldnn.flags(enabled=False):
        others = list(take(kind, settings, kind.steps))
    ways = list(zip(plain, others, take(kind, settings, kind.steps, jitter=True), strict=True))
    kept: dict[str, Any] = {}
    for steps, *rest in reversed(ways):
        kept = _values(kind, steps)
        parted = {name for other in rest for name, _ in differences(kept, other, AGREEMENT)}
        if not parted:
            return kept
    for group, tensors in plain[0].moved.items():
        for place, name in enumerate(tensors):
            if f"{group}/{name}" in parted:
                for lists in kept["tensors"][group].values():
                    lists[place] = None
    kept["metrics"] = {name: value for name, value in kept["metrics"].items() if name not in parted}
    return kept


def _values(kind: Kind, steps: Steps) -> dict[str, Any]:
    return {
        "row": kind.key,
        "level": kind.row.level(kind.level),
        "steps": len(steps.metrics["train_loss"]),
        "metrics": {name: _rounded(value) for name, value in steps.metrics.items()},
        "tensors": {
            group: {
                "norms": _rounded(tensor.norm for tensor in tensors.values()),
                "projections": _rounded(tensor.projection for tensor in tensors.values()),
            }
            for group, tensors in steps.moved.items()
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
        now = steps.metrics[name]
        size = max(map(abs, (*was, *now)))
        gap = max(abs(before - after) for before, after in zip(was, now, strict=True))
        if not gap <= tolerance * size:
            yield name, gap / size
    sizes = {group: len(kept["norms"]) for group, kept in golden["tensors"].items()}
    if sizes != {group: len(tensors) for group, tensors in steps.moved.items()}:
        yield "other tensors in the state", float("inf")
        return
    for group, tensors in steps.moved.items():
        kept_tensors = golden["tensors"][group]
        floor = FLOOR * math.hypot(*(tensor.norm for tensor in tensors.values()))
        for (name, here), norm, projection in zip(
            tensors.items(), kept_tensors["norms"], kept_tensors["projections"], strict=True
        ):
            if norm is None:
                continue
            size = max(norm, here.norm)
            gap = max(abs(norm - here.norm), abs(projection - here.projection))
            if not gap <= tolerance * size + max(floor, LAST * here.rounding):
                yield f"{group}/{name}", gap / size
    others = sum(ours != other for ours, other in zip(golden["classes"], steps.classes, strict=True))
    if others > CLASSES:
        yield "predicted classes", others / len(steps.classes)


def _rounded(values: Iterable[float]) -> list[float]:
    return [float(f"{value:.{DIGITS}g}") for value in values]
