"""Floating-point operations of the forward and backward passes of a row's training.

`python -m dprepro.pipeline.cluster.costs` writes the operations of each network to
``reports/operations.json``, so that `dprepro plan` need not import torch. It also writes the hours of GPU
rows for the report. The operations of a network that is not in the file are counted on demand.
"""

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from dprepro.errors import UserError
from dprepro.pipeline import params
from dprepro.pipeline.data.raw import entry_of
from dprepro.pipeline.files import write_json
from dprepro.pipeline.identity.plan import Planned
from dprepro.pipeline.methods.settings import MethodSettings
from dprepro.pipeline.models.model import Model
from dprepro.pipeline.params import Row, Settings
from dprepro.pipeline.results.records import GPU_HOURS

A_CORE = 16e9  # operations a second of training on one core: the median of 75 rows
OPERATIONS = Path("reports/operations.json")
COUNTED = 4  # examples of the pass whose operations are counted
# Assumptions for an H200: 30 % of its 67 TFLOP/s in float32 without tensor cores, which training never uses
# here (`set_float32_matmul_precision("highest")`), and seconds to start the kernels of the smallest step
GPU_RATE, GPU_STEP = 20e12, 0.01


@dataclass(frozen=True)
class Cost:
    """Number of floating-point operations of a training."""

    operations: float  # a multiplication with its addition counts as two
    steps: int


def costs(row: Row, settings: Settings) -> list[Cost]:
    """Count the operations of a row's trainings, a `Cost` for each.

    Only forward and backward passes count: clipping, noise, public data and tests are left out. On a CPU,
    private steps of convolutional networks took .6 to 2.1 times as long as steps of plain SGD, whose
    operations are counted here (reports/benchmarks/steps.md).

    Raises:
        UserError: the network can't be built.
        RuntimeError: the network can't take the data.
    """
    split, circumstances = settings.split(row.data), settings.circumstances(row)
    counted = []
    for trained, _ in row.trainings:
        steps = trained.total_steps(split.train)
        passes = steps * trained.passes_per_step(circumstances)
        operations = passes * _operations_of_a_pass(row.model, *_network_sizes(row, trained, settings))
        counted.append(Cost(operations, steps))
    return counted


def _network_sizes(row: Row, trained: MethodSettings, settings: Settings) -> tuple[tuple[int, ...], int]:
    """Input shape and number of classes of a row's network."""
    split = settings.split(row.data)
    entry = entry_of(split.raw, settings)
    if entry.shape is not None:
        return trained.input_shape(entry.shape), len(entry.classes)
    assert split.text is not None, "texts have no shape of their own"
    return split.text.input_shape, len(entry.classes)


def operations(settings: Settings) -> dict[str, float]:
    """Operations of one forward and one backward pass of one example, for each network of the rows."""
    networks = {
        _network(row.model, *(takes := _network_sizes(row, trained, settings))): (row.model, *takes)
        for row in settings.rows.values()
        for trained in row.resolved
    }
    return {name: count_operations(*network) for name, network in sorted(networks.items())}


def gpu_hours(settings: Settings) -> dict[str, float]:
    """Estimated GPU hours, to two digits, of each row that needs a GPU."""
    hours: dict[str, float] = {}
    for key, row in settings.rows.items():
        if row.needs == "gpu":
            counted = costs(row, settings)
            seconds = sum(max(cost.operations / GPU_RATE, cost.steps * GPU_STEP) for cost in counted)
            hours[key] = float(f"{seconds / 3600:.2g}")
    return hours


def seconds(settings: Settings, planned: Planned) -> float | None:
    """Estimated training time of a row in seconds, from its operations if ``planned`` has no time.

    None if the network can't be built; the training then reports the error.
    """
    if planned.seconds is not None:
        return planned.seconds
    try:
        counted = costs(settings.rows[planned.row], settings)
    except (UserError, RuntimeError):
        return None
    share = planned.replicas / len(counted)
    return share * sum(cost.operations for cost in counted) / A_CORE


@cache
def _operations_of_a_pass(model: Model, shape: tuple[int, ...], classes: int) -> float:
    """Operations of one forward and one backward pass of one example."""
    counted = json.loads(OPERATIONS.read_bytes()) if OPERATIONS.exists() else {}
    known: float | None = counted.get(_network(model, shape, classes))
    return count_operations(model, shape, classes) if known is None else known


def _network(model: Model, shape: tuple[int, ...], classes: int) -> str:
    return json.dumps([model.model_dump(mode="json", exclude_defaults=True), shape, classes])


def count_operations(model: Model, shape: tuple[int, ...], classes: int) -> float:
    """Operations of one forward and one backward pass of one example, counted by torch.

    Raises:
        UserError: the network can't be built.
        RuntimeError: the network can't take such inputs.
    """
    import torch
    from torch.nn import functional as F
    from torch.utils.flop_counter import FlopCounterMode

    from dprepro.pipeline.methods.registry import build_net

    with torch.device("meta"):  # which computes nothing
        net = build_net(model, shape, classes, tried=False)
    with torch.device("meta"), FlopCounterMode(display=False) as counter:
        texts = len(shape) == 2
        inputs = torch.ones(COUNTED, shape[0], dtype=torch.int32) if texts else torch.ones(COUNTED, *shape)
        F.cross_entropy(net(inputs), torch.zeros(COUNTED, dtype=torch.int64)).backward()
    return counter.get_total_flops() / COUNTED


if __name__ == "__main__":
    declared = params.load()
    write_json(OPERATIONS, operations(declared))
    write_json(GPU_HOURS, gpu_hours(declared))
