"""Networks that mix examples, and networks that don't: small, many, and each of a kind that people write."""

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

WIDTH, CLASSES, WORDS, LENGTH = 6, 3, 9, 8
Function = Callable[[Tensor], Tensor]
INPUTS = {"vector": (WIDTH,), "places": (LENGTH, WIDTH), "image": (2, 6, 6), "text": (LENGTH,)}


@dataclass(frozen=True)
class Case:
    """A network, and the kind of its inputs."""

    build: Callable[[], nn.Module]
    kind: str = "vector"


class Around(nn.Module):
    """Functions of inputs (B, 6), of hidden vectors and of logits around two trained layers."""

    def __init__(self, inputs: Function | None = None, hidden: Function | None = None):
        super().__init__()
        self.first, self.last = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, CLASSES)
        self.of_inputs, self.of_hidden = inputs, hidden

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = self.first(self.of_inputs(inputs) if self.of_inputs else inputs).tanh()
        return self.last(self.of_hidden(hidden) if self.of_hidden else hidden)


class Text(nn.Module):
    """A function of tokens (B, T), then the mean of a table's rows, or what ``reads`` makes of them."""

    def __init__(self, tokens: Function | None = None, reads: Function | None = None):
        super().__init__()
        self.table, self.last = nn.Embedding(WORDS, WIDTH, padding_idx=0), nn.Linear(WIDTH, CLASSES)
        self.of_tokens, self.reads = tokens, reads

    def forward(self, tokens: Tensor) -> Tensor:
        vectors = self.table(self.of_tokens(tokens) if self.of_tokens else tokens)
        return self.last((self.reads(vectors) if self.reads else vectors.mean(1)).tanh())


def batch(kind: str, size: int) -> tuple[Tensor, Tensor]:
    """Inputs and labels; examples are of all sizes and signs, and texts of all lengths."""
    random = torch.Generator().manual_seed(size)
    labels = torch.randint(CLASSES, (size,), generator=random)
    if kind == "text":
        tokens = torch.randint(1, WORDS, (size, LENGTH), generator=random)
        lengths = torch.randint(1, LENGTH + 1, (size, 1), generator=random)
        lengths[0] = LENGTH
        return torch.where(torch.arange(LENGTH) < lengths, tokens, 0), labels
    inputs = torch.randn(size, *INPUTS[kind], generator=random)
    inputs[0] *= 4
    return inputs, labels


def alone(
    net: nn.Module,
    inputs: Tensor | dict[str, Tensor],
    labels: Tensor,
    clip: float,
    loss: Callable[[Any, Tensor], Tensor] = F.cross_entropy,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Norms and clipped sum of the gradients of each example, by a copy of ``net`` that has seen nothing."""
    named = {name: value for name, value in net.named_parameters() if value.requires_grad}
    sums, norms = {name: torch.zeros_like(value) for name, value in named.items()}, []
    for place in range(len(labels)):
        row, fresh = slice(place, place + 1), copy.deepcopy(net)
        leaves = [value for value in fresh.parameters() if value.requires_grad]
        if isinstance(inputs, dict):
            outputs = fresh(**{name: value[row].clone() for name, value in inputs.items()})
        else:
            outputs = fresh(inputs[row].clone())
        gradients = torch.autograd.grad(loss(outputs, labels[row]), leaves, materialize_grads=True)
        norms.append(torch.cat([gradient.flatten() for gradient in gradients]).norm())
        for name, gradient in zip(named, gradients, strict=True):
            sums[name] += gradient * torch.clamp(clip / norms[-1], max=1)
    return torch.stack(norms), sums


def distance(some: dict[str, Tensor], others: dict[str, Tensor]) -> float:
    """L2 distance of two sums."""
    return math.sqrt(sum(float((some[name] - others[name]).square().sum()) for name in some))
