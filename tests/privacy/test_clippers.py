"""Networks are tried before they are clipped: what mixes is refused, what a fast way has wrong goes slower."""

import random
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import dprepro
from pipeline.errors import UserError
from pipeline.privacy.clippers import fastest
from pipeline.privacy.gradients import BookKeeping, Bounds, OneByOne, PerExample
from tests.privacy.networks import Drawn

WIDTH, CLASSES = 6, 4


class Head(nn.Module):
    """Something between two trained layers, of (B, 6)."""

    def __init__(self, between: Callable[[Tensor], Tensor] | nn.Module):
        super().__init__()
        self.first, self.last = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, CLASSES)
        self.between = between

    def forward(self, inputs: Tensor) -> Tensor:
        return self.last(self.between(self.first(inputs)))


class Tied(nn.Module):
    """The table of the tokens is the output layer too."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(9, WIDTH)

    def forward(self, tokens: Tensor) -> Tensor:
        return F.linear(self.table(tokens).mean(1).tanh(), self.table.weight)


class TwoNames(nn.Module):
    """One layer is a child of two modules."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(WIDTH, CLASSES)
        self.all = nn.Sequential(self.first, nn.Tanh(), nn.Linear(CLASSES, CLASSES))

    def forward(self, inputs: Tensor) -> Tensor:
        return self.all(inputs)


class Frozen(nn.Module):
    """A layer that is used where no gradient is taken."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, CLASSES)

    def forward(self, inputs: Tensor) -> Tensor:
        with torch.no_grad():
            hidden = self.first(inputs)
        return self.last(hidden.tanh())


class Scaled(nn.Sequential):
    """A hook doubles what a trained layer puts out."""

    def __init__(self) -> None:
        super().__init__(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, CLASSES))
        self[0].register_forward_hook(lambda layer, arguments, output: 2 * output)


class Backward(nn.Sequential):
    """A hook doubles the gradient that goes back through a layer, which `vmap` can't take."""

    def __init__(self) -> None:
        super().__init__(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, CLASSES))
        self[1].register_full_backward_hook(lambda layer, inputs, outputs: (2 * inputs[0],))


class Sequences(nn.Module):
    """A layer over (B, T, 6), averaged over T."""

    def __init__(self, layer: nn.Module, out: int = WIDTH, calls: int = 1):
        super().__init__()
        self.layer, self.out, self.calls = layer, nn.Linear(out, CLASSES), calls

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = self.layer(*[inputs] * self.calls)
        return self.out((hidden[0] if isinstance(hidden, tuple) else hidden).mean(1))


class Branching(nn.Module):
    """What it computes depends on the values, which `vmap` can't take."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(WIDTH, CLASSES), nn.Linear(WIDTH, CLASSES)

    def forward(self, inputs: Tensor) -> Tensor:
        return torch.stack([(self.first if row.sum() > 3 else self.last)(row) for row in inputs])


class Noting(nn.Module):
    """Keeps an average of its inputs, as batch norm does, and uses it nowhere."""

    average: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("average", torch.zeros(WIDTH))

    def forward(self, inputs: Tensor) -> Tensor:
        self.average = 0.9 * self.average + 0.1 * inputs.detach().mean(0)
        return inputs


def attention(hidden: Tensor) -> Tensor:
    return (hidden @ hidden.T).softmax(1) @ hidden


def images() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(inplace=True), nn.Conv2d(4, 4, 3, bias=False),
        nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(64, CLASSES),
    )  # fmt: skip


def folded(hidden: Tensor) -> Tensor:
    return hidden.view(1, -1)


ROWS, TEXTS, PLACES, IMAGES = (WIDTH,), (5,), (5, WIDTH), (1, 8, 8)
MIXING = {
    "batch norm without weights": (Head(nn.BatchNorm1d(WIDTH, affine=False)), "layer 'between': batch norm"),
    "functional batch norm": (Head(lambda x: F.batch_norm(x, None, None, training=True)), "."),
    "functional batch norm of places": (
        nn.Sequential(nn.Unflatten(1, (2, 3)), Head(nn.Identity())).append(nn.Identity()), ".",
    ),
    "standardised": (Head(lambda x: (x - x.mean(0)) / (x.var(0, correction=0) + 1e-5).sqrt()), "mixes examples"),
    "centred": (Head(lambda x: x - x.mean(0)), "mixes examples: in a batch of 2"),
    "detached": (Head(lambda x: x - x.mean(0).detach()), "mixes examples: in a batch of 2"),
    "attention over the batch": (Head(attention), "mixes examples"),
    "cumulated": (Head(lambda x: x.cumsum(0)), "mixes examples"),
    "turned around": (Head(lambda x: x.flip(0)), "mixes examples"),
    "folded into one": (Head(nn.Identity()).append(nn.Identity()) if False else nn.Sequential(nn.Linear(WIDTH, CLASSES), nn.Flatten(0), nn.Unflatten(0, (1, -1))), "makes (1, 8) of 2 examples"),
}
