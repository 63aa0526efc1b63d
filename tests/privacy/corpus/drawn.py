"""Random networks: their clipped sums, by every way, beside one ordinary backward pass for each example."""

import copy
import random
from contextlib import suppress

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import dprepro
from tests.privacy.corpus import alone, distance

CLASSES, EXAMPLES, WORDS = 4, 3, 11
CLIP = 0.7
TOLERANCE = 3e-3  # of the clip, or of a gradient's size, in single precision
ACTIVATIONS = (
    nn.ReLU,
    nn.LeakyReLU,
    nn.ELU,
    nn.SiLU,
    nn.Hardtanh,
    nn.Tanh,
    nn.GELU,
    nn.Softplus,
    nn.Identity,
)
IN_PLACE = ACTIVATIONS[:5]


class Residual(nn.Module):
    """What goes in is added to what comes out, in place or not."""

    def __init__(self, inner: nn.Module, in_place: bool):
        super().__init__()
        self.inner, self.in_place = inner, in_place

    def forward(self, inputs: Tensor) -> Tensor:
        out = self.inner(inputs)
        return out.add_(inputs) if self.in_place else out + inputs


class Twice(nn.Module):
    """A layer that is used twice, under two names."""

    def __init__(self, layer: nn.Module):
        super().__init__()
        self.here, self.there = layer, layer

    def forward(self, inputs: Tensor) -> Tensor:
        return self.there(self.here(inputs).tanh())


class Tied(nn.Module):
    """The mean of a text's words, and logits by the very table that it was looked up in."""

    def __init__(self, table: nn.Embedding, inner: nn.Module):
        super().__init__()
        self.table, self.inner = table, inner

    def forward(self, tokens: Tensor) -> Tensor:
        hidden = self.inner(self.table(tokens)).flatten(1, -2).mean(1)
        return F.linear(hidden, self.table.weight[:CLASSES])


class Mean(nn.Module):
    """Over all places of a text."""

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs.mean(1)


def drawn(seed: int) -> tuple[nn.Module, Tensor]:
    """A network of layers drawn one after the other, each as the shape before it allows; and its inputs."""
    chance = random.Random(seed)
    torch.manual_seed(seed)
    if chance.random() < 0.2:
        return _of_texts(chance)
    sides = chance.randint(4, 10), chance.randint(4, 10)
    inputs = torch.randn(EXAMPLES, chance.randint(1, 3), *sides)
    layers: list[nn.Module] = []
    example = inputs[:1]
    for _ in range(chance.randint(1, 4)):
        for layer in _block(chance, example.shape[1]):
            with suppress(RuntimeError, ValueError), torch.no_grad():  # it doesn't fit there
                if (fitted := layer(example.clone())).numel():
                    layers.append(layer)
                    example = fitted
    width = example[0].numel()
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(width, 6), nn.Tanh(), nn.Linear(6, CLASSES)), inputs


def _block(chance: random.Random, channels: int) -> list[nn.Module]:
    """A convolution and what may stand behind one."""
    pick = chance.choice
    groups, same = pick((1, 1, channels)), chance.random() < 0.3
    out = channels if same else groups * pick((1, 2, 3))
    convolution = nn.Conv2d(
        channels,
        out,
        pick(((3, 3), (1, 1), (2, 3), (5, 5))),
        stride=1 if same else pick((1, 1, 2, (2, 1))),
        padding="same" if same else pick((0, 1, 2)),
        dilation=pick((1, 1, 2)),
        groups=groups,
        bias=pick((True, False)),
        padding_mode=pick(("zeros", "zeros", "reflect", "replicate", "circular")),
    )
    norm = pick(
        (
            nn.Identity(),
            nn.GroupNorm(pick([count for count in range(1, out + 1) if out % count == 0]), out),
            nn.BatchNorm2d(out).eval(),
            nn.InstanceNorm2d(out, affine=pick((True, False))),
            nn.LocalResponseNorm(3),
        )
    )
    pool = pick((nn.Identity(), nn.MaxPool2d(2), nn.AvgPool2d(2), nn.MaxPool2d(3, 1, 1), nn.Dropout2d(0.0)))
    block = [convolution, norm, _activation(chance)]
    if out == channels and chance.random() < 0.4:
        if chance.random() < 0.5:
            return [Twice(convolution), *block[1:]]
        return [Residual(nn.Sequential(*block), pick((True, False))), _activation(chance)]
    return [*block, pool]


def _activation(chance: random.Random) -> nn.Module:
    kind = chance.choice(ACTIVATIONS)
    return kind(inplace=True) if kind in IN_PLACE and chance.random() < 0.4 else kind()


def _of_texts(chance: random.Random) -> tuple[nn.Module, Tensor]:
    tokens, width = torch.randint(WORDS, (EXAMPLES, chance.randint(2, 7))), chance.choice((2, 4, 6))
    table = nn.Embedding(WORDS, width, padding_idx=chance.choice((None, 0)))
    residual = Residual(
        nn.Sequential(nn.Linear(width, width), _activation(chance)), chance.choice((True, False))
    )
    every = (nn.LayerNorm(width), nn.Linear(width, width), _activation(chance), residual)
    layers = [layer for layer in every if chance.random() < 0.6]
    if chance.random() < 0.3:
        return Tied(table, nn.Sequential(*layers)), tokens
    return nn.Sequential(table, *layers, Mean(), nn.Linear(width, CLASSES)), tokens


def check(seed: int) -> None:
    """Make sure that the clipped sums of the network that ``seed`` draws are those of one backward pass each.

    Where numbers that would be equal differ by rounding, as what group norm makes of a constant map does, it
    is rounding that decides on which side of a ReLU they are, or which of them a pool takes: backward passes
    in single and in double precision differ by half a gradient. There is no right one then to compare with.
    """
    net, inputs = drawn(seed)
    labels = torch.arange(EXAMPLES) % CLASSES
    double = copy.deepcopy(net).double()
    try:
        norms, expected = alone(net, inputs, labels, CLIP)
        precise = alone(double, inputs.double() if inputs.is_floating_point() else inputs, labels, CLIP)[1]
    except RuntimeError:  # something is overwritten that torch still needs
        with pytest.raises(dprepro.UserError):
            dprepro.clipped_sum(net, inputs.clone(), labels, CLIP)
        return
    determined = distance(expected, precise) <= TOLERANCE * CLIP
    for reference in (False, True):
        for _ in range(2):  # the first call leaves the network as it was
            actual = dprepro.clipped_sum(net, inputs.clone(), labels, CLIP, reference=reference)
            assert actual.sums.keys() == expected.keys()
            if determined:
                torch.testing.assert_close(
                    actual.norms[:, 0], norms, rtol=0, atol=TOLERANCE * float(norms.max())
                )
                assert distance(actual.sums, expected) <= TOLERANCE * CLIP
        without = dprepro.clipped_sum(net, inputs[1:].clone(), labels[1:], CLIP, reference=reference)
        if determined:  # a record moves the sum by no more than the clip
            assert distance(actual.sums, without.sums) <= (1 + TOLERANCE) * CLIP
