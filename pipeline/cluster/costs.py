"""What training a row costs, by counting: floating-point operations of its forward and backward passes.

`python -m pipeline.cluster.costs` writes the hours of rows that need a GPU to where the report reads them.
"""

from dataclasses import dataclass
from functools import cache

import torch
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from pipeline import params
from pipeline.data.raw import entry_of
from pipeline.files import write_json
from pipeline.methods.registry import build_net
from pipeline.models.model import Model
from pipeline.params import Row, Settings
from pipeline.results.records import GPU_HOURS

COUNTED = 4  # examples of the pass that is counted
# Assumed of an H200: 30 % of its 67 TFLOP/s in float32 without tensor cores, which training never uses here
# (`set_float32_matmul_precision("highest")`), and seconds that the smallest step takes to start its kernels
GPU_RATE, GPU_STEP = 20e12, 0.01


@dataclass(frozen=True)
class Cost:
    """Of replicas that share their steps."""

    operations: float  # floating-point, a multiplication with its addition being two
    steps: int
    replicas: int


def costs(row: Row, settings: Settings) -> list[Cost]:
    """Count a row's training: every example that a step takes forward and backward.

    What comes on top is left out: clipping, noise, public data, tests. On a processor steps of convolutional
    networks took .6 to 2.1 times what plain SGD's take, which are counted here (reports/benchmarks/steps.md).

    Raises:
        UserError: its network can't be built.
        RuntimeError: its network can't take the data.
    """
    split, circumstances = settings.split(row.data), settings.circumstances(row)
    entry = entry_of(split.raw, settings)
    stored, classes = entry.shape, len(entry.classes)  # of texts no shape
    groups: dict[object, Cost] = {}
    for trained, _ in row.trainings:
        if stored is None:
            assert split.text is not None
            shape: tuple[int, ...] = split.text.input_shape
        else:
            shape = trained.input_shape(stored)
        steps = trained.total_steps(split.train)
        before = groups.get(trained.batching_key, Cost(0.0, steps, 0))
        passes = steps * trained.passes_per_step(circumstances)
        operations = passes * _operations_of_a_pass(row.model, shape, classes)
        groups[trained.batching_key] = Cost(before.operations + operations, steps, before.replicas + 1)
    return list(groups.values())


def gpu_hours(settings: Settings) -> dict[str, float]:
    """Hours of one GPU, two digits of them, for each row that needs one."""
    hours: dict[str, float] = {}
    for key, row in settings.rows.items():
        if row.needs == "gpu":
            counted = costs(row, settings)
            seconds = sum(max(cost.operations / GPU_RATE, cost.steps * GPU_STEP) for cost in counted)
            hours[key] = float(f"{seconds / 3600:.2g}")
    return hours


@cache
def _operations_of_a_pass(model: Model, shape: tuple[int, ...], classes: int) -> float:
    """One forward and one backward pass of one example."""
    with torch.device("meta"):  # which computes nothing
        net = build_net(model, shape, classes)
    with torch.device("meta"), FlopCounterMode(display=False) as counter:
        texts = len(shape) == 2
        inputs = torch.ones(COUNTED, shape[0], dtype=torch.int32) if texts else torch.ones(COUNTED, *shape)
        F.cross_entropy(net(inputs), torch.zeros(COUNTED, dtype=torch.int64)).backward()
    return counter.get_total_flops() / COUNTED


if __name__ == "__main__":
    write_json(GPU_HOURS, gpu_hours(params.load()))
