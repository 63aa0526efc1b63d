"""Golden values: the kept numbers of the first three steps, and how steps taken now are compared with them.

One file a method, `METHOD.json`. Of every kind of training it has the metrics of each step; of every group of
tensors in the state how far each has moved, as its norm and its projection on random signs, in the order of
the tensors' names; and the same of the model's outputs afterwards. A projection moves with every entry, and
with its sign.

The steps are taken in float64, in which processors, threads and libraries differ by less than a millionth of
`TOLERANCE`. A tensor may still move by rounding alone, as Adam moves a bias whose gradient is 0: `FLOOR` is
above that. Recording compares with steps from weights that are off by a rounding each, and
leaves out what these don't agree on.
"""

import json
import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from dprepro.fields import Strict
from dprepro.pipeline.methods.settings import method_settings
from dprepro.pipeline.params import Settings
from tests.golden.steps import Kind, Moved, Steps, kinds_of, take

TOLERANCE = 1e-6  # of a value's size
FLOOR = 1e-6  # of the size of a tensor's group
AGREEMENT = 0.1  # share of both by which steps from weights off by a rounding may differ
DIGITS = 9
DEFAULTS = "defaults"  # entry of a file beside the kinds of trainings


def path_of(method: str) -> Path:
    """File of a method's golden values."""
    return Path(__file__).with_name(f"{method}.json")


def read(method: str) -> dict[str, Any]:
    """A method's golden values, by the name of the kind; none where there is no file."""
    path = path_of(method)
    values: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    values.pop(DEFAULTS, None)
    return values


def read_defaults(method: str) -> dict[str, Any]:
    """Defaults of the method's settings when its golden values were written, by name of the setting."""
    stored: dict[str, Any] = json.loads(path_of(method).read_text(encoding="utf-8"))[DEFAULTS]
    return stored


def defaults(settings: type[Strict]) -> dict[str, Any]:
    """Defaults of settings as JSON values, by name."""
    fields = settings.model_fields.items()
    found = {name: field.default for name, field in fields if not field.is_required()}
    return {name: [*value] if isinstance(value, tuple) else value for name, value in sorted(found.items())}


def write(method: str, values: dict[str, Any]) -> None:
    """Write a method's golden values and the defaults of its settings, a list a line."""
    values = {DEFAULTS: defaults(method_settings()[method]), **values}
    first, *lists = json.dumps(values, indent=1).split("[")
    split = [text.partition("]") for text in lists]
    text = first + "".join(f"[{' '.join(inside.split())}]{rest}" for inside, _, rest in split)
    path_of(method).write_text(text + "\n", encoding="utf-8")


def record(kind: Kind, settings: Settings) -> dict[str, Any]:
    """Golden values of a kind: of as many steps as rounding leaves alone, and at least one.

    A tensor that rounding moves even in one step, as batch norm of a single example has it, is `null`.
    """
    steps = take(kind, settings, kind.steps)
    jittered = take(kind, settings, kind.steps, jitter=True)
    for taken, other in reversed(list(zip(steps, jittered, strict=True))):
        values = _values(kind, taken)
        parted = {name for name, _ in differences(values, other, AGREEMENT)}
        if not parted:
            return values
    for group, tensors in steps[0].moved.items():
        for place, name in enumerate(tensors):
            if f"{group}/{name}" in parted:
                for lists in values["tensors"][group].values():
                    lists[place] = None
    values["metrics"] = {name: value for name, value in values["metrics"].items() if name not in parted}
    return values


def problem(kind: Kind, settings: Settings) -> str | None:
    """One line where the first steps of a kind aren't as they were; None where they are."""
    method = kind.row.method
    golden = read(method).get(kind.name)
    if golden is None:
        return f"{kind.key}: no golden values of its kind, {kind.name!r}: `python -m tests.golden {method}`"
    *_, steps = take(_kept(kind, settings), settings, golden["steps"])
    moved = sorted(differences(golden, steps), key=lambda change: -change[1])
    if not moved:
        return None
    most = ", ".join(f"{name} by {gap:.1g} of its size" for name, gap in moved[:3])
    return (
        f"{method}: the numbers of {golden['row']} ({kind.name}) have moved: {most}; {len(moved)} in all. If "
        f"that was not meant, mend it. If it was, raise `version` in the settings of {method!r} (VERSION in "
        f"the file of {kind.row.model.name!r} where the model alone is why) and write golden values anew: "
        f"`python -m tests.golden {method}`"
    )


def _kept(kind: Kind, settings: Settings) -> Kind:
    """The row and level whose golden values are kept, if they are still of this kind."""
    golden = read(kind.row.method)[kind.name]
    row = settings.rows.get(golden["row"], kind.row)
    levels = {row.level(configured): configured for configured in row.resolved}
    level = levels.get(golden["level"], row.resolved[0])
    others = kinds_of(golden["row"], row, level, settings)
    return next((other for other in others if other.name == kind.name), kind)


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
    }


def differences(golden: dict[str, Any], steps: Steps, share: float = 1.0) -> Iterator[tuple[str, float]]:
    """Values that differ by more than ``share`` of what is allowed: name, and gap relative to its size."""
    if missing := golden["metrics"].keys() - steps.metrics.keys():
        yield f"no metric {', '.join(sorted(missing))}", float("inf")
        return
    for name, was in golden["metrics"].items():
        now = steps.metrics[name]
        size = max(map(abs, (*was, *now)))
        gap = max(abs(before - after) for before, after in zip(was, now, strict=True))
        if not gap <= share * TOLERANCE * size:
            yield name, gap / size
    sizes = {group: len(kept["norms"]) for group, kept in golden["tensors"].items()}
    if sizes != {group: len(tensors) for group, tensors in steps.moved.items()}:
        yield "other tensors in the state", float("inf")
        return
    for group, tensors in steps.moved.items():
        kept = zip(*golden["tensors"][group].values(), strict=True)
        floor = FLOOR * math.hypot(*(tensor.norm for tensor in tensors.values()))
        for (name, here), both in zip(tensors.items(), kept, strict=True):
            if None in both:
                continue
            was = Moved(*both)
            size = max(was.norm, here.norm)
            gap = max(abs(was.norm - here.norm), abs(was.projection - here.projection))
            if not gap <= share * (TOLERANCE * size + floor):
                yield f"{group}/{name}", gap / size


def _rounded(values: Iterable[float]) -> list[float]:
    return [float(f"{value:.{DIGITS}g}") for value in values]
