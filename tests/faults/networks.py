"""Random networks: their clipped sums, by every way, beside one ordinary backward pass for each example."""

import copy
import math
import random

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import dprepro

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


class Drawing:
    """Layers drawn one after the other, each as the shape before it allows."""

    def __init__(self, seed: int):
        self.random = random.Random(seed)
        torch.manual_seed(seed)

    def network(self) -> tuple[nn.Module, Tensor]:
        """A network, and inputs of it."""
        kind = self.random.choice(("image", "image", "image", "vector", "text"))
        if kind == "image":
            inputs = torch.randn(EXAMPLES, self.random.randint(1, 3), *self._sizes())
        elif kind == "vector":
            inputs = torch.randn(EXAMPLES, self.random.randint(2, 12))
        else:
            return self._text()
        layers: list[nn.Module] = []
        shape = inputs[:1]
        for _ in range(self.random.randint(1, 4)):
            shape = self._add(layers, self._block(shape), shape)
        if kind == "image" and self.random.random() < 0.4:
            shape = self._add(layers, [nn.AdaptiveAvgPool2d(self.random.choice((1, 2)))], shape)
        shape = self._add(layers, [nn.Flatten()], shape)
        return nn.Sequential(*layers, nn.Linear(shape.shape[1], CLASSES)), inputs

    def _sizes(self) -> tuple[int, int]:
        return self.random.randint(4, 10), self.random.randint(4, 10)

    def _add(self, layers: list[nn.Module], more: list[nn.Module], example: Tensor) -> Tensor:
        """Those of ``more`` that take what the layers before make."""
        for layer in more:
            try:
                with torch.no_grad():
                    found = layer(example.clone())
            except (RuntimeError, ValueError):
                continue
            if found.numel():
                layers.append(layer)
                example = found
        return example

    def _block(self, example: Tensor) -> list[nn.Module]:
        channels, images = example.shape[1], example.dim() == 4
        trained = self._conv(channels) if images else nn.Linear(channels, self.random.randint(2, 12))
        out = trained.out_channels if isinstance(trained, nn.Conv2d) else trained.out_features
        block = [trained, self._norm(out, images), self._activation()]
        if out == channels and self.random.random() < 0.4:
            if self.random.random() < 0.5:
                return [Twice(trained), *block[1:]]
            return [Residual(nn.Sequential(*block), self.random.random() < 0.5), self._activation()]
        if images:
            block.append(self._pool())
        return self.random.sample(block, len(block)) if self.random.random() < 0.1 else block

    def _conv(self, channels: int) -> nn.Conv2d:
        pick = self.random.choice
        groups = pick((1, 1, channels))
        same = self.random.random() < 0.3
        return nn.Conv2d(
            channels,
            channels if same else groups * pick((1, 2, 3)),
            pick(((3, 3), (1, 1), (2, 3), (5, 5))),
            stride=1 if same else pick((1, 1, 2, (2, 1))),
            padding="same" if same else pick((0, 1, 2)),
            dilation=pick((1, 1, 2)),
            groups=groups,
            bias=pick((True, False)),
            padding_mode=pick(("zeros", "zeros", "reflect", "replicate", "circular")),
        )

    def _norm(self, channels: int, images: bool) -> nn.Module:
        pick = self.random.choice
        groups = pick([count for count in range(1, channels + 1) if channels % count == 0])
        eval_norm = (nn.BatchNorm2d if images else nn.BatchNorm1d)(channels).eval()
        choices = [nn.Identity(), nn.GroupNorm(groups, channels, affine=pick((True, False))), eval_norm]
        if images:
            choices += [
                nn.InstanceNorm2d(channels, affine=pick((True, False))),
                nn.LocalResponseNorm(3),
            ]
        else:
            choices.append(nn.LayerNorm(channels, elementwise_affine=pick((True, False))))
        return pick(choices)

    def _activation(self) -> nn.Module:
        kind = self.random.choice(ACTIVATIONS)
        return kind(inplace=True) if kind in IN_PLACE and self.random.random() < 0.4 else kind()

    def _pool(self) -> nn.Module:
        pick = self.random.choice
        return pick(
            (nn.Identity(), nn.MaxPool2d(2), nn.AvgPool2d(2), nn.MaxPool2d(3, 1, 1), nn.Dropout2d(0.0))
        )

    def _text(self) -> tuple[nn.Module, Tensor]:
        tokens = torch.randint(WORDS, (EXAMPLES, self.random.randint(2, 7)))
        pick, width = self.random.choice, self.random.choice((2, 4, 6))
        table = nn.Embedding(WORDS, width, padding_idx=pick((None, 0)))
        layers: list[nn.Module] = [
            layer
            for layer in (
                nn.LayerNorm(width), nn.Linear(width, width), self._activation(),
                Residual(nn.Sequential(nn.Linear(width, width), self._activation()), pick((True, False))),
            )
            if self.random.random() < 0.6
        ]  # fmt: skip
        if self.random.random() < 0.3:
            return Tied(table, nn.Sequential(*layers)), tokens
        return nn.Sequential(table, *layers, Mean(), nn.Linear(width, CLASSES)), tokens


def tried(seed: int) -> str | None:
    """What is wrong with the clipped sums of the network that ``seed`` draws; None if nothing.

    Where numbers that would be equal differ by rounding, as what group norm makes of a constant map does, it
    is rounding that decides on which side of a ReLU they are, or which of them a pool takes: backward passes
    in single and in double precision differ by half a gradient. There is no right one then to compare with.
    """
    net, inputs = Drawing(seed).network()
    labels = torch.arange(EXAMPLES) % CLASSES
    double = copy.deepcopy(net).double()
    try:
        norms, expected = one_by_one(net, inputs, labels)
        precise = one_by_one(double, inputs.double() if inputs.is_floating_point() else inputs, labels)[1]
    except RuntimeError:  # something is overwritten that torch still needs
        try:
            dprepro.clipped_sum(net, inputs.clone(), labels, CLIP)
        except dprepro.UserError:
            return None
        return "torch can't differentiate it, and it isn't refused"
    determined = distance(expected, precise) <= TOLERANCE
    for reference in (False, True):
        for call in range(2):  # the first of which leaves the network as it was
            found = dprepro.clipped_sum(net, inputs.clone(), labels, CLIP, reference=reference)
            if found.sums.keys() != expected.keys():
                return f"reference {reference}, call {call}: sums of {', '.join(found.sums)}"
            off = float((found.norms[:, 0] - norms).abs().max() / norms.max())
            apart = distance(found.sums, expected)
            if determined and not (off <= TOLERANCE and apart <= TOLERANCE):
                said = f"norms {off:.1%} off, the sum by {apart:.1%} of the clip"
                return f"reference {reference}, call {call}: {said}"
        without = dprepro.clipped_sum(net, inputs[1:].clone(), labels[1:], CLIP, reference=reference)
        if determined and not distance(found.sums, without.sums) <= 1 + TOLERANCE:
            return f"reference {reference}: a record moves the sum by more than the clip"
    return None


def distance(some: dict[str, Tensor], others: dict[str, Tensor]) -> float:
    """Between two sums, over the clip."""
    return math.sqrt(sum(float((some[name] - others[name]).square().sum()) for name in some)) / CLIP


def one_by_one(net: nn.Module, inputs: Tensor, labels: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """The examples' norms, and their clipped sum, by nothing but `backward`."""
    sums = {name: torch.zeros_like(value) for name, value in net.named_parameters()}
    norms = []
    for example, label in zip(inputs, labels, strict=True):
        net.zero_grad(set_to_none=False)
        F.cross_entropy(net(example[None].clone()), label[None]).backward()
        gradient = {n: torch.zeros_like(p) if p.grad is None else p.grad for n, p in net.named_parameters()}
        norms.append(torch.cat([value.flatten() for value in gradient.values()]).norm())
        for name, value in gradient.items():
            sums[name] += value * torch.clamp(CLIP / norms[-1], max=1)
    return torch.stack(norms), sums
