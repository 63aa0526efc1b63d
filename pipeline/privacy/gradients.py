"""Sums of clipped per-example gradients: the obvious way, and a fast way that must agree with it.

Both take one replica's tensors; the caller adds replicas with `torch.func.vmap`. ``tensors`` holds every
parameter *and* buffer of the network that is to be differentiated, by name, so statistics given to a
normalisation layer (`BatchStatistics`) are just more names.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional as F

from pipeline.models.normalization import BatchStatistics

Tensors = dict[str, Tensor]


class ClippedSum(NamedTuple):
    """What a batch gives away, and what stays in the laboratory."""

    sums: Tensors  # sum over examples of the clipped gradient; the shapes of `tensors`
    norms: Tensor  # (B,) L2 norm of each example's gradient before clipping
    losses: Tensor  # (B,) loss of each example


class Clipper(Protocol):
    """A way to compute `ClippedSum`.

    Shapes: inputs (B, ...), labels (B,), mask (B,) with 1 for examples that are there and 0 for padding,
    clip () the L2 bound C, weights: factor of each named gradient inside the clipped vector (1 if not named).
    """

    def __call__(
        self, tensors: Tensors, inputs: Tensor, labels: Tensor, mask: Tensor, clip: Tensor
    ) -> ClippedSum:
        """The sums of one batch."""


def clip_factors(norms: Tensor, mask: Tensor, clip: Tensor) -> Tensor:
    """(B,) factor min(1, C / norm) of each example (Abadi et al. 2016, Alg. 1); 0 for padding.

    A gradient that is not finite has no norm to clip to; its factor is 0. Whoever sums must also replace its
    values (`nan_to_num`), because 0 times infinity is not 0; then it adds nothing.
    """
    factors = mask * torch.clamp(clip / norms.clamp_min(1e-12), max=1.0)
    return torch.where(torch.isfinite(norms), factors, torch.zeros_like(factors))


@dataclass(frozen=True)
class PerExample:
    """The reference: one gradient an example by vmap(grad), then clip, then sum."""

    net: nn.Module
    weights: dict[str, float]

    def __call__(
        self, tensors: Tensors, inputs: Tensor, labels: Tensor, mask: Tensor, clip: Tensor
    ) -> ClippedSum:
        """The sums of one batch; see `Clipper`."""

        def loss(tensors: Tensors, example: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
            value = F.cross_entropy(functional_call(self.net, tensors, (example[None],)), label[None])
            return value, value

        gradients, losses = vmap(grad(loss, has_aux=True), in_dims=(None, 0, 0))(tensors, inputs, labels)
        gradients = {name: self.weights.get(name, 1.0) * value for name, value in gradients.items()}
        norms = torch.stack([g.flatten(1).square().sum(1) for g in gradients.values()]).sum(0).sqrt()
        factors = clip_factors(norms, mask, clip)
        gradients = {name: torch.nan_to_num(g) for name, g in gradients.items()}
        sums = {name: torch.tensordot(factors, g, dims=1) for name, g in gradients.items()}
        return ClippedSum(sums, norms, losses)


class Outer(NamedTuple):
    """Per-example gradients of a matrix as outer products left x right, never written out."""

    left: Tensor  # (B, O)
    right: Tensor  # (B, I)

    def square_norms(self) -> Tensor:
        """(B,) squared Frobenius norms: those of the two vectors, multiplied."""
        return self.left.square().sum(1) * self.right.square().sum(1)

    def weighted_sum(self, factors: Tensor) -> Tensor:
        """(O, I) sum over examples, one matrix product."""
        return (torch.nan_to_num(self.left) * factors[:, None]).T @ torch.nan_to_num(self.right)


class Full(NamedTuple):
    """Per-example gradients written out."""

    value: Tensor  # (B, ...)

    def square_norms(self) -> Tensor:
        """(B,) squared norms."""
        return self.value.flatten(1).square().sum(1)

    def weighted_sum(self, factors: Tensor) -> Tensor:
        """Sum over examples."""
        return torch.tensordot(factors, torch.nan_to_num(self.value), dims=1)


Gradients = dict[str, Outer | Full]


def _linear(layer: nn.Linear, inputs: Tensor, out: Tensor, tensors: Tensors) -> Gradients:
    found: Gradients = {"weight": Outer(out, inputs)}
    if layer.bias is not None:
        found["bias"] = Full(out)
    return found


def _conv(layer: nn.Conv2d, inputs: Tensor, out: Tensor, tensors: Tensors) -> Gradients:
    flat = out.flatten(2)  # (B, O, P)
    weight = torch.bmm(flat, _patches(layer, inputs).transpose(1, 2)).unflatten(2, layer.weight.shape[1:])
    found: Gradients = {"weight": Full(weight)}
    if layer.bias is not None:
        found["bias"] = Full(flat.sum(2))
    return found


def _patches(layer: nn.Conv2d, inputs: Tensor) -> Tensor:
    """(B, I K K, P): what the kernel sees at each of P places.

    A view copied once; `F.unfold` walks the examples one by one, which on a busy CPU takes 50 times as long.
    """
    assert not isinstance(layer.padding, str), "ruled out by `_plain`"
    (down, across), (above, beside) = layer.stride, layer.padding
    padded = F.pad(inputs, (beside, beside, above, above))
    height, width = layer.kernel_size
    windows = padded.unfold(2, height, down).unfold(3, width, across)  # (B, I, H', W', K, K)
    return windows.permute(0, 1, 4, 5, 2, 3).flatten(4).flatten(1, 3)


def _plain(layer: nn.Conv2d) -> bool:
    """Whether `_conv` has the layer's case."""
    zeros = layer.padding_mode == "zeros" and not isinstance(layer.padding, str)
    return zeros and layer.groups == 1 and layer.dilation == (1, 1)


def _affine(normalized: Tensor, out: Tensor) -> tuple[Tensor, Tensor]:
    """(B, C) gradients of scale and shift."""
    out = out.reshape(*out.shape[:2], -1)
    return (out * normalized.reshape_as(out)).sum(2), out.sum(2)


def _group_norm(layer: nn.GroupNorm, inputs: Tensor, out: Tensor, tensors: Tensors) -> Gradients:
    weight, bias = _affine(F.group_norm(inputs, layer.num_groups, eps=layer.eps), out)
    return {"weight": Full(weight), "bias": Full(bias)}


def _batch_statistics(layer: BatchStatistics, inputs: Tensor, out: Tensor, tensors: Tensors) -> Gradients:
    mean, var = tensors["mean"], tensors["var"]
    weight, bias = _affine(layer.normalized(inputs, mean, var), out)
    # d/dmean and d/dvar of weight * (x - mean) / sqrt(var + eps), through the two sums above
    scale = tensors["weight"] * torch.rsqrt(var + layer.epsilon)
    return {
        "weight": Full(weight),
        "bias": Full(bias),
        "mean": Full(-scale * bias),
        "var": Full(-0.5 * tensors["weight"] / (var + layer.epsilon) * weight),
    }


_RULES: dict[type[nn.Module], Callable[..., Gradients]] = {
    nn.Linear: _linear,
    nn.Conv2d: _conv,
    nn.GroupNorm: _group_norm,
    BatchStatistics: _batch_statistics,
}


class BookKeeping:
    """The fast way: one forward and backward pass for all examples, then clip and sum layer by layer.

    A per-example gradient of a layer is a product of its input and the gradient at its output, and both are
    there after one ordinary pass over the batch (the book-keeping of Bu et al. 2023, arXiv:2210.00038). The
    gradients at the outputs come from zeros added to them, 'taps', so everything stays a pure function and
    vmap carries replicas. Linear layers never write their per-example gradients out.
    """

    def __init__(self, net: nn.Module, weights: dict[str, float], example: Tensor):
        """Record the layers' output shapes on ``example`` (1, ...).

        Raises:
            NotImplementedError: a trainable layer has no rule here, or is used twice in a pass;
                `PerExample` takes every network.
        """
        self.net = net
        self.weights = weights
        self.layers = {
            name: layer
            for name, layer in net.named_modules()
            if next(layer.parameters(recurse=False), None) is not None
        }
        for name, layer in self.layers.items():
            if type(layer) not in _RULES or (isinstance(layer, nn.Conv2d) and not _plain(layer)):
                raise NotImplementedError(f"no fast per-example gradient for layer {name!r} ({layer})")
        shapes: dict[str, torch.Size] = {}

        def note(name: str, output: Tensor) -> Tensor:
            if name in shapes:
                raise NotImplementedError(
                    f"no fast per-example gradient for layer {name!r}: it is used twice"
                )
            shapes[name] = output.shape[1:]
            return output

        with torch.no_grad(), self._hooks(lambda name, inputs: None, note):
            net(example)
        self.shapes = shapes

    @contextmanager
    def _hooks(
        self, seen: Callable[[str, Tensor], None], changed: Callable[[str, Tensor], Tensor]
    ) -> Iterator[None]:
        def hook(name: str, layer: nn.Module, arguments: tuple[Tensor, ...], output: Tensor) -> Tensor:
            seen(name, arguments[0])
            return changed(name, output)

        handles = [layer.register_forward_hook(partial(hook, name)) for name, layer in self.layers.items()]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def __call__(
        self, tensors: Tensors, inputs: Tensor, labels: Tensor, mask: Tensor, clip: Tensor
    ) -> ClippedSum:
        """The sums of one batch; see `Clipper`."""

        def total(taps: Tensors) -> tuple[Tensor, tuple[Tensor, Tensors]]:
            seen: Tensors = {}
            with self._hooks(seen.__setitem__, lambda name, output: output + taps[name]):
                losses = F.cross_entropy(
                    functional_call(self.net, tensors, (inputs,)), labels, reduction="none"
                )
            return losses.sum(), (losses, seen)

        taps = {name: inputs.new_zeros(()).expand(len(inputs), *shape) for name, shape in self.shapes.items()}
        outs, (losses, seen) = grad(total, has_aux=True)(taps)
        gradients: Gradients = {}
        for name, layer in self.layers.items():
            own = {key: tensors[f"{name}.{key}"] for key in layer.state_dict() if f"{name}.{key}" in tensors}
            for key, value in _RULES[type(layer)](layer, seen[name], outs[name], own).items():
                gradients[f"{name}.{key}"] = value
        squares = [self.weights.get(name, 1.0) ** 2 * g.square_norms() for name, g in gradients.items()]
        norms = torch.stack(squares).sum(0).sqrt()
        factors = clip_factors(norms, mask, clip)
        sums = {name: self.weights.get(name, 1.0) * gradients[name].weighted_sum(factors) for name in tensors}
        return ClippedSum(sums, norms, losses)
