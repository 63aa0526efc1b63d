"""Canaries: examples with a chosen gradient direction in a linear network, under any clipping.

The network is linear with K classes, and its weights start at zero. There, an example with input x and class
k has the gradient (1/K - [c = k]) x in the weights of class c, far longer than any clipping bound. The inputs
are multiples of unit vectors. The weights stay at zero, because the step size is almost 0. An absent canary
has input 0, and so gradient 0.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dprepro.fields import Noise
from dprepro.noise.streams import Streams
from dprepro.pipeline.methods.base import Execution, Task

RATE = 1e-30  # learning rate
LENGTH = 1e6  # of a canary's input: its gradient, also divided by a batch size, exceeds any clipping bound
CLASSES = 2


class Directions:
    """(N, D) inputs, made on access: ``lengths[n]`` times unit vector number ``directions[n]``."""

    def __init__(self, directions: Tensor, lengths: Tensor, width: int):
        """Set (N,) ``directions``, from 0 to ``width`` - 1, and (N,) ``lengths``."""
        self.directions, self.lengths, self.shape = directions, lengths, (len(directions), width)

    def __len__(self) -> int:
        """Number of examples, N."""
        return len(self.directions)

    def index_select(self, dim: int, index: Tensor) -> Tensor:
        """Inputs (B, D) at ``index`` (B,), like `torch.Tensor.index_select` with ``dim`` 0."""
        return self[index]

    def __getitem__(self, index: Tensor | slice) -> Tensor:
        """Inputs at ``index``."""
        return F.one_hot(self.directions[index], self.shape[1]).float() * self.lengths[index][..., None]


class AlternatingLinear(nn.Module):
    """Sum of ``parts`` parallel linear layers with alternating signs.

    Adjacent layers have opposite gradients, so noise that they share cancels out in an attacker's score.
    """

    def __init__(self, width: int, parts: int):
        """Set all weights to zero."""
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, CLASSES, bias=False) for _ in range(parts))
        for layer in self.layers:
            assert isinstance(layer, nn.Linear)
            nn.init.zeros_(layer.weight)

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits (B, K) of K = `CLASSES` classes for inputs (B, D)."""
        return torch.stack([layer_sign(at) * layer(inputs) for at, layer in enumerate(self.layers)]).sum(0)


def layer_sign(layer: int) -> int:
    """Sign of the output of the layer with number ``layer``, and so of its gradient."""
    return -1 if layer % 2 else 1


class CanaryExamples(NamedTuple):
    """Examples of an attack."""

    inputs: Directions
    labels: Tensor  # (N,)


def single_canaries(examples: int, present: Tensor) -> CanaryExamples:
    """Examples; the first M are canaries, the n-th with an input along axis n.

    All others, and canaries where ``present`` (M,) is False, are absent: they have no gradient.
    """
    directions, lengths, count = torch.zeros(examples, dtype=torch.long), torch.zeros(examples), len(present)
    directions[:count], lengths[:count] = torch.arange(count), LENGTH * present
    return CanaryExamples(Directions(directions, lengths, count), torch.zeros(examples, dtype=torch.long))


def crowd_with_record(examples: int, within: bool) -> CanaryExamples:
    """Examples whose inputs all lie along one axis; if ``within``, the first example is the record.

    The record has another label and a far longer input, so it reverses the mean gradient. If not ``within``,
    the first example is like the others. So the data sets with and without the record differ in one example.
    """
    labels, lengths = torch.zeros(examples, dtype=torch.long), torch.full((examples,), LENGTH)
    if within:
        labels[0], lengths[0] = 1, LENGTH * 1e4
    return CanaryExamples(Directions(torch.zeros_like(labels), lengths, 1), labels)


def task(
    kinds: CanaryExamples, name: str, parts: int, noise: Noise | None = None, group: int | None = None
) -> Task:
    """Task of the training ``name`` on the examples ``kinds``, with the ``group`` of the row's data.

    Randomness is as in a seeded training (`Streams`). The network is an `AlternatingLinear` with ``parts``
    layers.
    """
    width = kinds.inputs.shape[1]
    net = AlternatingLinear(width, parts)
    device = torch.device("cpu")
    return Task(
        net=net,
        parameters={name: value.detach() for name, value in net.named_parameters()},
        inputs=kinds.inputs,  # type: ignore[arg-type]
        labels=kinds.labels,
        public=torch.full((4, width), LENGTH),
        public_labels=torch.zeros(4, dtype=torch.long),
        streams=Streams(name, True, device, noise),
        execution=Execution(device, physical=100_000),
        group=group,
    )
