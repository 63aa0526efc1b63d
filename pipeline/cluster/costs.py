"""What training a row costs, by counting: floating-point operations of its forward and backward passes."""

from dataclasses import dataclass
from functools import cache

import torch
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from pipeline.data.catalog import CATALOG
from pipeline.methods.registry import build_net
from pipeline.models.model import Model
from pipeline.params import Row, Settings

CLASSES = 10
COUNTED = 4  # examples of the pass that is counted


@dataclass(frozen=True)
class Cost:
    """Of replicas that share their steps."""

    operations: float  # floating-point, a multiplication with its addition being two
    steps: int
    replicas: int

    @property
    def alone(self) -> "Cost":
        """Of one of them."""
        return Cost(self.operations / self.replicas, self.steps, 1)


@dataclass(frozen=True)
class Machine:
    """What a slot does."""

    rate: float  # operations a second that training sustains
    step: float  # seconds that a step takes at least, however small

    def seconds(self, cost: Cost) -> float:
        """How long they take."""
        return max(cost.operations / self.rate, cost.steps * self.step)


def costs(row: Row, settings: Settings) -> list[Cost]:
    """Count a row's training: every copy of every example once forward and once backward, in every step.

    What comes on top is left out: clipping, noise, public data, tests. On a processor most of our steps took
    .7 to 1.8 times what plain SGD's take, which are counted here (reports/benchmarks/steps.md).
    """
    split = settings.split(row.data)
    stored = CATALOG[settings.raw[split.raw].of or split.raw].shape
    groups: dict[object, Cost] = {}
    for own, _ in row.trainings:
        steps = own.total_steps(split.train)
        if stored is None:
            assert split.text is not None
            shape: tuple[int, ...] = (split.text.tokens, split.text.vocabulary)
        else:
            shape = own.input_shape(stored)
        examples = steps * own.batch * getattr(own, "copies", 1)
        before = groups.get(own.batching_key, Cost(0.0, steps, 0))
        operations = before.operations + examples * _of_an_example(row.model, shape)
        groups[own.batching_key] = Cost(operations, steps, before.replicas + 1)
    return list(groups.values())


@cache
def _of_an_example(model: Model, shape: tuple[int, ...]) -> float:
    """One forward and one backward pass."""
    net = build_net(model, shape, CLASSES)
    if len(shape) == 2:
        inputs = torch.randint(1, shape[1], (COUNTED, shape[0]), dtype=torch.int32)
    else:
        inputs = torch.rand(COUNTED, *shape)
    with FlopCounterMode(display=False) as counter:
        F.cross_entropy(net(inputs), torch.zeros(COUNTED, dtype=torch.int64)).backward()
    found = counter.get_total_flops()
    assert found > 0
    return found / COUNTED
