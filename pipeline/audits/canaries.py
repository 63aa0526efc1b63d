"""Canaries: examples whose gradient is one direction of a linear network, however the clipping takes it.

The network is linear and begins at zero, where an example of the direction j and the class k has the gradient
(1/K - [k]) x_j, far longer than any bound it is clipped to; and it stays at zero, as a step size of next to
nothing moves it by as much. An example that is nobody has the gradient 0.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pipeline.methods.base import Execution, Task
from pipeline.privacy.parameters import Noise
from pipeline.privacy.randomness import Streams

RATE = 1e-30  # of a step
LENGTH = 1e6  # of a canary's input: its gradient, and its share of a mean, is longer than any clipping bound
NOBODY = -1  # the direction of an example without a gradient


class Directions:
    """(N, D) inputs that are made when they are asked for: ``length`` in the direction ``of`` (N,)."""

    def __init__(self, of: Tensor, width: int, lengths: Tensor):
        """``width`` D; ``lengths`` (N,)."""
        self.of, self.width, self.lengths = of, width, lengths
        self.shape = (len(of), width)

    def __len__(self) -> int:
        """N, the number of examples."""
        return len(self.of)

    def __getitem__(self, index: Tensor | slice) -> Tensor:
        """The inputs at ``index``."""
        of = self.of[index]
        directions = F.one_hot(of.clamp_min(0), self.width).float()
        return directions * torch.where(of == NOBODY, 0.0, self.lengths[index])[..., None]


class Side(nn.Module):
    """``parts`` linear layers beside one another, added and subtracted in turn.

    Every other layer so has the opposite gradient, and noise that all of them share takes itself away.
    """

    def __init__(self, width: int, classes: int, parts: int):
        """With weights that are all zero."""
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, classes, bias=False) for _ in range(parts))
        for layer in self.layers:
            assert isinstance(layer, nn.Linear)
            nn.init.zeros_(layer.weight)

    def forward(self, inputs: Tensor) -> Tensor:
        """(B, K) of (B, D)."""
        return torch.stack([sign(at) * layer(inputs) for at, layer in enumerate(self.layers)]).sum(0)


def sign(layer: int) -> int:
    """Of a layer's output, and so of its gradient."""
    return -1 if layer % 2 else 1


@dataclass(frozen=True)
class Kinds:
    """What examples there are."""

    directions: Tensor  # (N,) or `NOBODY`
    labels: Tensor  # (N,)
    lengths: Tensor  # (N,) of inputs
    width: int
    classes: int


def many(examples: int, canaries: int, present: Tensor) -> Kinds:
    """A direction of its own for each canary that is ``present`` (M,); all others are nobody."""
    directions = torch.full((examples,), NOBODY)
    directions[:canaries] = torch.where(present, torch.arange(canaries), NOBODY)
    return Kinds(
        directions, torch.zeros(examples, dtype=torch.long), torch.full((examples,), LENGTH), canaries, 2
    )


def crowd(examples: int, within: bool) -> Kinds:
    """One direction: all pull one way, and the first, where it is there, pulls the other way with all weight.

    Where it isn't, it is one of the others: neighbours that replace one.
    """
    labels, lengths = torch.zeros(examples, dtype=torch.long), torch.full((examples,), LENGTH)
    if within:
        labels[0], lengths[0] = 1, LENGTH * 1e4
    return Kinds(torch.zeros(examples, dtype=torch.long), labels, lengths, 1, 2)


def task(
    kinds: Kinds, names: Sequence[str], parts: int, reproducible: bool = True, noise: Noise | None = None
) -> Task:
    """What replicas with these names learn from the examples, by the real streams of the engine."""
    net = Side(kinds.width, kinds.classes, parts)
    device = torch.device("cpu")
    # the same for all replicas, and never written to
    parameters = {
        name: value.detach().expand(len(names), *value.shape) for name, value in net.named_parameters()
    }
    return Task(
        net=net,
        parameters=parameters,
        inputs=Directions(kinds.directions, kinds.width, kinds.lengths),  # type: ignore[arg-type]
        labels=kinds.labels,
        public=torch.full((4, kinds.width), LENGTH),
        public_labels=torch.zeros(4, dtype=torch.long),
        streams=Streams(names, reproducible, device, noise),
        execution=Execution(device, replicas_at_once=None, physical=100_000),
    )
