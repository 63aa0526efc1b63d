"""What a method is given, and what it must offer."""

from dataclasses import dataclass, field
from typing import Protocol

import torch
from dp_accounting import DpEvent
from torch import Tensor, nn

from pipeline.privacy.gradients import Tensors
from pipeline.privacy.randomness import Streams

# Everything a method carries from step to step: groups of tensors with a leading replica dimension R.
State = dict[str, Tensors]


@dataclass(frozen=True)
class Execution:
    """How to compute; none of it changes a result beyond rounding."""

    device: torch.device
    # replicas in one vmap: all of them on a GPU, one at a time on a CPU, whose batched convolutions are slow
    replicas_at_once: int | None
    # examples of one forward pass, all replicas together: bounds the memory
    physical: int
    # per-example gradients by the obvious vmap(grad) instead of the fast way
    reference: bool = False

    def examples_at_once(self, replicas: int) -> int:
        """Examples of one replica in one forward pass."""
        return max(1, self.physical // min(replicas, self.replicas_at_once or replicas))


@dataclass(frozen=True)
class Task:
    """What R replicas learn together: one network shape, one data set, one start each."""

    net: nn.Module
    parameters: Tensors  # (R, ...) initial parameters
    inputs: Tensor  # (N, ...) training inputs on the device, as stored
    labels: Tensor  # (N,)
    public: Tensor  # (M, ...) public inputs, as stored
    streams: Streams
    execution: Execution

    @property
    def replicas(self) -> int:
        """R."""
        return len(self.streams.names)


@dataclass(frozen=True)
class Guarantee:
    """What a replica's training spends, from the object that spent it."""

    event: DpEvent | None  # None: no private mechanism at all
    noise_multiplier: float | None
    rate: float | None
    delta: float | None
    claimed_by: str | None  # the accountant behind the paper's claim
    broken: str | None = None  # why the event's epsilon does not hold for what ran
    uncounted: list[str] = field(default_factory=list)  # uses of private data that the event leaves out


class Method(Protocol):
    """A training method over R replicas at once. Built from a `Task` and each replica's settings."""

    def init(self) -> State:
        """State before the first step."""

    def step(self, state: State, step: int) -> tuple[State, Tensors]:
        """One step: the new state, and (R,) metrics of the private batch, for the laboratory only."""

    def predict(self, state: State, inputs: Tensor) -> Tensor:
        """(R, B) predicted classes of ``inputs`` (B, ...) as stored."""

    def guarantee(self, replica: int, steps: int) -> Guarantee:
        """What ``steps`` steps of one replica spend."""


def as_input(stored: Tensor) -> Tensor:
    """Images as stored (uint8) to [0, 1]; no statistic of the data enters. Tokens stay as they are."""
    return stored.float() / 255 if stored.dtype == torch.uint8 else stored
