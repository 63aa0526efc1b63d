"""Sums of clipped per-example gradients: the obvious way, and a fast way that must agree with it.

Both take one replica's tensors; the caller adds replicas with `torch.func.vmap`. ``tensors`` holds every
parameter *and* buffer of the network that is to be differentiated, by name, so statistics given to a
normalisation layer (`BatchStatistics`) are just more names.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vjp, vmap
from torch.nn import functional as F

from pipeline.models.normalization import BatchStatistics

Tensors = dict[str, Tensor]


class Bounds(NamedTuple):
    """To what a gradient of T tensors is clipped: G parts of it, each to a bound of its own.

    A tensor belongs to one part. Its weight is a factor inside the part's norm: the tensor is clipped as if
    it were multiplied by it, and gets noise as if it were divided by it again afterwards.
    """

    members: Tensor  # (T, G) 1 where a tensor belongs to a part
    limits: Tensor  # (G,) L2 bound of each part
    weights: Tensor  # (T,)

    @classmethod
    def whole(cls, limit: Tensor, tensors: int) -> "Bounds":
        """The whole gradient as one part, clipped to ``limit`` () (Abadi et al. 2016)."""
        return cls(limit.new_ones(tensors, 1), limit[None], limit.new_ones(tensors))


class ClippedSum(NamedTuple):
    """What a batch gives away, and what stays in the laboratory."""

    sums: Tensors  # sum over examples of the clipped gradient; the shapes of `tensors`
    norms: Tensor  # (B, G) L2 norm of each part of each example's gradient before clipping
    losses: Tensor  # (B,) loss of each example, the mean of its copies'


class Clipper(Protocol):
    """A way to compute `ClippedSum`.

    Shapes: inputs (B K, ...), the K augmented copies of an example one after the other, whose gradients are
    averaged before clipping (De et al. 2022; Sander et al. 2022, Eq. 5; K is the clipper's own); labels (B,),
    mask (B,) with 1 for examples that are there and 0 for padding, bounds for the tensors in the order of
    ``tensors``.
    """

    def __call__(
        self, tensors: Tensors, inputs: Tensor, labels: Tensor, mask: Tensor, bounds: Bounds
    ) -> ClippedSum:
        """The sums of one batch."""


def clip_factors(squares: Tensor, mask: Tensor, bounds: Bounds) -> tuple[Tensor, Tensor]:
    """Factor min(1, C / norm) of each part of each example (Abadi et al. 2016, Alg. 1); 0 for padding.

    A part that is not finite has no norm to clip to; its factor is 0. Whoever sums must also replace its
    values (`nan_to_num`), because 0 times infinity is not 0; then it adds nothing.

    Args:
        squares: (B, T) squared L2 norm of each tensor of each example's gradient.
        mask: (B,) 1 for examples that are there.
        bounds: of the T tensors.

    Returns:
        (B, T) the factor of each tensor, that of its part; (B, G) the parts' norms.
    """
    weighted = squares * bounds.weights**2
    # apart from the sums, where infinity times 0 would spoil the norms of the other parts
    lost = (~torch.isfinite(weighted)).to(squares) @ bounds.members > 0
    norms = (torch.where(torch.isfinite(weighted), weighted, 0.0) @ bounds.members).sqrt()
    norms = torch.where(lost, torch.inf, norms)
    factors = mask[:, None] * torch.clamp(bounds.limits / norms.clamp_min(1e-12), max=1.0)
    factors = torch.where(torch.isfinite(norms), factors, torch.zeros_like(factors))
    return factors @ bounds.members.T, norms


def clipped(gradients: Tensors, losses: Tensor, mask: Tensor, bounds: Bounds) -> ClippedSum:
    """Clip gradients that are written out, (B, ...) each, and sum them."""
    squares = torch.stack([_squares(value) for value in gradients.values()], 1)
    factors, norms = clip_factors(squares, mask, bounds)
    sums = {
        name: torch.tensordot(own, torch.nan_to_num(value), dims=1)
        for own, (name, value) in zip(factors.T, gradients.items(), strict=True)
    }
    return ClippedSum(sums, norms, losses)


def _squares(value: Tensor) -> Tensor:
    """(B,) squared norms of (B, ...); a product, because torch's square is five times as slow on a CPU."""
    flat = value.flatten(1)
    return (flat * flat).sum(1)


def fastest(net: nn.Module, example: Tensor, copies: int = 1, reference: bool = False) -> Clipper:
    """The fast way where it has a rule for every layer, else the reference, or that anyway on request.

    ``example`` is one of the network's inputs (1, ...).
    """
    if not reference:
        try:
            return BookKeeping(net, example, copies)
        except NotImplementedError:
            pass  # a layer without a fast rule: the reference takes every layer
    return PerExample(net, copies)


@dataclass(frozen=True)
class PerExample:
    """The reference: one gradient an example by vmap(grad), then clip, then sum."""

    net: nn.Module
    copies: int = 1  # K

    def __call__(
        self, tensors: Tensors, inputs: Tensor, labels: Tensor, mask: Tensor, bounds: Bounds
    ) -> ClippedSum:
        """The sums of one batch; see `Clipper`."""

        def loss(tensors: Tensors, example: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
            logits = functional_call(self.net, tensors, (example,))
            value = F.cross_entropy(logits, label.expand(self.copies))
            return value, value

        apart = inputs.unflatten(0, (-1, self.copies))
        gradients, losses = vmap(grad(loss, has_aux=True), in_dims=(None, 0, 0))(tensors, apart, labels)
        return clipped(gradients, losses, mask, bounds)


class Outer(NamedTuple):
    """Per-example gradients of a matrix as outer products left x right, never written out."""

    left: Tensor  # (B, O)
    right: Tensor  # (B, I)

    def square_norms(self) -> Tensor:
        """(B,) squared Frobenius norms: those of the two vectors, multiplied.

        Each is divided by its largest entry first: a tiny vector squared would be 0, and with a huge one at
        its side a gradient could pass unclipped.
        """
        largest = [side.abs().amax(1).clamp_min(1e-37) for side in self]
        squares = [(side / size[:, None]).square().sum(1) for side, size in zip(self, largest, strict=True)]
        return squares[0] * squares[1] * (largest[0] * largest[1]).square()

    def weighted_sum(self, factors: Tensor) -> Tensor:
        """(O, I) sum over examples, one matrix product."""
        return (torch.nan_to_num(self.left) * factors[:, None]).T @ torch.nan_to_num(self.right)


class Rows(NamedTuple):
    """Per-example gradients of an embedding table (V, E), of whose rows an example looks up but a few."""

    total: int  # V
    tokens: Tensor  # (B, P) the row looked up at each place
    value: Tensor  # (B, P, E) gradients of these rows; of a row that comes several times, zero but the first

    def square_norms(self) -> Tensor:
        """(B,) squared norms."""
        return self.value.square().sum((1, 2))

    def weighted_sum(self, factors: Tensor) -> Tensor:
        """(V, E) sum over examples: the table's ordinary backward pass."""
        table = self.value.new_zeros(self.total, self.value.shape[2])
        pullback = vjp(lambda table: F.embedding(self.tokens, table), table)[1]
        return pullback(torch.nan_to_num(self.value) * factors[:, None, None])[0]


class Full(NamedTuple):
    """Per-example gradients written out."""

    value: Tensor  # (B, ...)

    def square_norms(self) -> Tensor:
        """(B,) squared norms."""
        return _squares(self.value)

    def weighted_sum(self, factors: Tensor) -> Tensor:
        """Sum over examples."""
        return torch.tensordot(factors, torch.nan_to_num(self.value), dims=1)


Gradients = dict[str, Outer | Rows | Full]
# A rule: the gradients of a layer from its inputs and the gradients at its outputs, both (B, ...) and one for
# each use of the layer in a pass, copies counting as uses, and from the layer's own tensors.
Rule = Callable[[Any, list[Tensor], list[Tensor], Tensors], Gradients]


def _places(uses: list[Tensor]) -> Tensor:
    """(B, P, C): all places of all uses of a layer that works on the last dimension alone."""
    flat = [use.reshape(len(use), -1, use.shape[-1]) for use in uses]
    return torch.cat(flat, 1) if len(flat) > 1 else flat[0]


def _linear(layer: nn.Linear, inputs: list[Tensor], outs: list[Tensor], tensors: Tensors) -> Gradients:
    right, left = _places(inputs), _places(outs)
    alone = left.shape[1] == 1
    found: Gradients = {
        "weight": Outer(left[:, 0], right[:, 0]) if alone else Full(left.transpose(1, 2) @ right)
    }
    if layer.bias is not None:
        found["bias"] = Full(left.sum(1))
    return found


def _embedding(layer: nn.Embedding, inputs: list[Tensor], outs: list[Tensor], tensors: Tensors) -> Gradients:
    tokens, out = _places([use[..., None] for use in inputs])[..., 0], _places(outs)
    # A row's gradients are added up before any norm is taken. The inner products of all pairs of places give
    # the same norm, but where gradients cancel, their rounding could hide one from the clipping.
    same = tokens[:, :, None] == tokens[:, None, :]  # (B, P, P)
    skipped = (same & torch.ones_like(same).tril(-1)).any(2)  # all but a row's first place
    if layer.padding_idx is not None:
        skipped = skipped | (tokens == layer.padding_idx)
    value = (same.to(out) @ out).masked_fill(skipped[..., None], 0.0)
    return {"weight": Rows(layer.num_embeddings, tokens, value)}


def _layer_norm(layer: nn.LayerNorm, inputs: list[Tensor], outs: list[Tensor], tensors: Tensors) -> Gradients:
    out = _places(outs)
    normalized = F.layer_norm(_places(inputs), layer.normalized_shape, eps=layer.eps)
    found: Gradients = {"weight": Full((out * normalized).sum(1))}
    if layer.bias is not None:
        found["bias"] = Full(out.sum(1))
    return found


def _each_use(rule: Callable[[Any, Tensor, Tensor, Tensors], Tensors]) -> Rule:
    """The rule of a layer whose gradients are written out for one use and added up."""

    def added(layer: nn.Module, inputs: list[Tensor], outs: list[Tensor], tensors: Tensors) -> Gradients:
        uses = [rule(layer, *use, tensors) for use in zip(inputs, outs, strict=True)]
        return {key: Full(reduce(torch.add, [use[key] for use in uses])) for key in uses[0]}

    return added


def _conv(layer: nn.Conv2d, inputs: list[Tensor], outs: list[Tensor], tensors: Tensors) -> Gradients:
    # the places of all uses side by side: one product, and one gradient written out instead of one a use
    left = _beside([out.flatten(2) for out in outs])  # (B, O, P)
    right = _beside([_patches(layer, use) for use in inputs])
    weight = torch.bmm(left, right.transpose(1, 2)).unflatten(2, layer.weight.shape[1:])
    found: Gradients = {"weight": Full(weight)}
    if layer.bias is not None:
        found["bias"] = Full(left.sum(2))
    return found


def _beside(uses: list[Tensor]) -> Tensor:
    return torch.cat(uses, 2) if len(uses) > 1 else uses[0]


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


def _affine(normalized: Tensor, out: Tensor) -> tuple[Tensor, Tensor]:
    """(B, C) gradients of scale and shift."""
    out = out.reshape(*out.shape[:2], -1)
    return (out * normalized.reshape_as(out)).sum(2), out.sum(2)


def _group_norm(layer: nn.GroupNorm, inputs: Tensor, out: Tensor, tensors: Tensors) -> Tensors:
    weight, bias = _affine(F.group_norm(inputs, layer.num_groups, eps=layer.eps), out)
    return {"weight": weight, "bias": bias}


def _batch_statistics(layer: BatchStatistics, inputs: Tensor, out: Tensor, tensors: Tensors) -> Tensors:
    mean, var = tensors["mean"], tensors["var"]
    weight, bias = _affine(layer.normalized(inputs, mean, var), out)
    # d/dmean and d/dvar of weight * (x - mean) / sqrt(var + eps), through the two sums above
    scale = tensors["weight"] * torch.rsqrt(var + layer.epsilon)
    return {
        "weight": weight,
        "bias": bias,
        "mean": -scale * bias,
        "var": -0.5 * tensors["weight"] / (var + layer.epsilon) * weight,
    }


_RULES: dict[type[nn.Module], Rule] = {
    nn.Linear: _linear,
    nn.Embedding: _embedding,
    nn.LayerNorm: _layer_norm,
    nn.Conv2d: _conv,
    nn.GroupNorm: _each_use(_group_norm),
    BatchStatistics: _each_use(_batch_statistics),
}


def _plain(layer: nn.Module) -> bool:
    """Whether a rule has the layer's case."""
    if isinstance(layer, nn.Conv2d):
        zeros = layer.padding_mode == "zeros" and not isinstance(layer.padding, str)
        return zeros and layer.groups == 1 and layer.dilation == (1, 1)
    if isinstance(layer, nn.LayerNorm):
        return len(layer.normalized_shape) == 1
    if isinstance(layer, nn.Embedding):
        return layer.max_norm is None and not layer.scale_grad_by_freq
    return True


class BookKeeping:
    """The fast way: one forward and backward pass for all examples, then clip and sum layer by layer.

    A per-example gradient of a layer is a product of its input and the gradient at its output, and both are
    there after one ordinary pass over the batch (the book-keeping of Bu et al. 2023, arXiv:2210.00038). The
    gradients at the outputs come from zeros added to them, 'taps', one for each use of a layer, so everything
    stays a pure function and vmap carries replicas. Linear layers used once an example, and embeddings, never
    write their per-example gradients out.
    """

    def __init__(self, net: nn.Module, example: Tensor, copies: int = 1):
        """Record the layers' output shapes on ``example`` (1, ...); ``copies``: K of `Clipper`.

        Layers none of whose parameters has `requires_grad` are frozen: they need no rule and cost nothing.

        Raises:
            NotImplementedError: a trainable layer has no rule here, isn't used, or shares a parameter with
                another; `PerExample` takes every network.
        """
        self.net = net
        self.copies = copies
        self.layers = {
            name: layer
            for name, layer in net.named_modules()
            if any(parameter.requires_grad for parameter in layer.parameters(recurse=False))
        }
        for name, layer in self.layers.items():
            if type(layer) not in _RULES or not _plain(layer):
                raise NotImplementedError(f"no fast per-example gradient for layer {name!r} ({layer})")
        own = [parameter for layer in self.layers.values() for parameter in layer.parameters(recurse=False)]
        if len({id(parameter) for parameter in own}) < len(own):
            raise NotImplementedError("no fast per-example gradient for a parameter that two layers share")
        shapes: dict[str, list[torch.Size]] = {name: [] for name in self.layers}

        def note(name: str, inputs: Tensor, output: Tensor) -> None:
            shapes[name].append(output.shape[1:])

        with torch.no_grad(), self._hooks(note):
            net(example)
        for name, found in shapes.items():
            if not found:
                raise NotImplementedError(f"no fast per-example gradient for layer {name!r}: it isn't used")
        self.shapes = shapes

    @contextmanager
    def _hooks(self, seen: Callable[[str, Tensor, Tensor], Tensor | None]) -> Iterator[None]:
        """Call ``seen`` with name, input and output at each use of a layer; it may return another output."""

        def hook(name: str, layer: nn.Module, arguments: tuple[Tensor, ...], output: Tensor) -> Tensor | None:
            return seen(name, arguments[0], output)

        handles = [layer.register_forward_hook(partial(hook, name)) for name, layer in self.layers.items()]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def __call__(
        self, tensors: Tensors, inputs: Tensor, labels: Tensor, mask: Tensor, bounds: Bounds
    ) -> ClippedSum:
        """The sums of one batch; see `Clipper`."""

        def total(taps: dict[str, list[Tensor]]) -> tuple[Tensor, tuple[Tensor, dict[str, list[Tensor]]]]:
            uses: dict[str, list[Tensor]] = {name: [] for name in self.layers}

            def tap(name: str, inputs: Tensor, output: Tensor) -> Tensor:
                uses[name].append(inputs)
                return output + taps[name][len(uses[name]) - 1]

            with self._hooks(tap):
                logits = functional_call(self.net, tensors, (inputs,))
            losses = F.cross_entropy(logits, labels.repeat_interleave(self.copies), reduction="none")
            losses = losses.unflatten(0, (-1, self.copies)).mean(1)
            return losses.sum(), (losses, uses)

        zero = next(iter(tensors.values())).new_zeros(())
        taps = {
            name: [zero.expand(len(inputs), *shape) for shape in shapes]
            for name, shapes in self.shapes.items()
        }
        outs, (losses, uses) = grad(total, has_aux=True)(taps)
        gradients: Gradients = {}
        for name, layer in self.layers.items():
            own = {key: tensors.get(f"{name}.{key}", value) for key, value in layer.state_dict().items()}
            found = _RULES[type(layer)](layer, self._apart(uses[name]), self._apart(outs[name]), own)
            for key, value in found.items():
                if f"{name}.{key}" in tensors:  # what is held fixed is no part of the clipped vector
                    gradients[f"{name}.{key}"] = value
        squares = torch.stack([gradients[name].square_norms() for name in tensors], 1)
        factors, norms = clip_factors(squares, mask, bounds)
        sums = {name: gradients[name].weighted_sum(own) for own, name in zip(factors.T, tensors, strict=True)}
        return ClippedSum(sums, norms, losses)

    def _apart(self, uses: list[Tensor]) -> list[Tensor]:
        """Each use (B K, ...) of a layer as K uses (B, ...)."""
        return [copy for use in uses for copy in use.unflatten(0, (-1, self.copies)).unbind(1)]
