"""The per-example gradients of one layer, from its inputs and the gradients at its outputs.

A rule takes the uses that a pass makes of a layer, each as (B, K, ...): B examples with K copies, whose
gradients are added up. What it returns can be asked for the examples' norms and for a weighted sum, and need
not hold the gradients as they are. What is summed is the very gradient whose norm was taken, never one
computed again: then no rounding error lets an example add more than its clipped vector.
"""

from collections.abc import Callable
from functools import partial, reduce
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.func import vjp
from torch.nn import functional as F

from pipeline.models.normalization import BatchStatistics

Tensors = dict[str, Tensor]
# Multiplications and additions of an example's gradient of a kernel from which on a CPU computes it faster
# by a convolution of its own than in one product of all examples, for which patches have to be written out
WIDE = 5e6
# Floats of patches that are written out before they are used: what a processor's cache holds
CACHED = 1_000_000
# Entries whose squares are added in float32, and gradients that are converted to float64 at once
BLOCK, CONVERTED = 1024, 16
# Floats that lie together in an image with its channels last, from which on patches are copied faster so
TOGETHER = 16


class Gradients(Protocol):
    """Per-example gradients of a tensor."""

    def square_norms(self) -> Tensor:
        """(B,) squared L2 norms."""

    def weighted_sum(self, factors: Tensor, finite: bool) -> Tensor:
        """Sum over examples, each times its own of ``factors`` (B,), in the precision of these.

        ``finite``: every example's norm is. Otherwise an example whose norm is not adds nothing, for which
        its factor must be 0.
        """


class Outer(NamedTuple):
    """Per-example gradients of a matrix as outer products left x right, never written out."""

    left: Tensor  # (B, O)
    right: Tensor  # (B, I)

    def square_norms(self) -> Tensor:
        """(B,) squared Frobenius norms: those of the two vectors, multiplied.

        Each in double precision: a tiny vector squared would be 0, and with a huge one at its side a gradient
        could pass unclipped.
        """
        left, right = (torch.linalg.vector_norm(side, dim=1, dtype=torch.float64) for side in self)
        return (left * right).square().to(self.left.dtype)

    def weighted_sum(self, factors: Tensor, finite: bool) -> Tensor:
        """(O, I) sum over examples, one matrix product."""
        left, right = self if finite else (torch.nan_to_num(side) for side in self)
        return (left * factors[:, None]).T @ right.to(factors)


class Rows(NamedTuple):
    """Per-example gradients of an embedding table (V, E), of whose rows an example looks up but a few."""

    total: int  # V
    tokens: Tensor  # (B, P) the row looked up at each place
    value: Tensor  # (B, P, E) gradients of these rows; of a row that comes several times, zero but the first

    def square_norms(self) -> Tensor:
        """(B,) squared L2 norms; see `Gradients`."""
        return squares(self.value)

    def weighted_sum(self, factors: Tensor, finite: bool) -> Tensor:
        """(V, E) sum over examples: the table's ordinary backward pass."""
        value = self.value if finite else torch.nan_to_num(self.value)
        weighted = value * factors[:, None, None]
        table = weighted.new_zeros(self.total, value.shape[2])
        pullback = vjp(lambda table: F.embedding(self.tokens, table), table)[1]
        return pullback(weighted)[0]


class Full(NamedTuple):
    """Per-example gradients written out."""

    value: Tensor  # (B, ...)
    last: bool = False  # whether they are a kernel's with its input channels last, (B, O, K, K, I)

    def square_norms(self) -> Tensor:
        """(B,) squared L2 norms; see `Gradients`."""
        return squares(self.value)

    def weighted_sum(self, factors: Tensor, finite: bool) -> Tensor:
        """The weighted sum over examples; see `Gradients`."""
        total = weighted_sum(self.value, factors, finite)
        return total.permute(0, 3, 1, 2).contiguous() if self.last else total


class Listed(NamedTuple):
    """Per-example gradients written out, each where it was computed."""

    values: list[Tensor]

    def square_norms(self) -> Tensor:
        """(B,) squared L2 norms; see `Gradients`."""
        return torch.cat([squares(value[None]) for value in self.values])

    def weighted_sum(self, factors: Tensor, finite: bool) -> Tensor:
        """The weighted sum over examples; see `Gradients`."""
        total = torch.zeros_like(self.values[0], dtype=factors.dtype)
        for value, factor in zip(self.values, factors.tolist(), strict=True):
            if factor != 0:  # a gradient that is not finite has none other
                total.add_(value, alpha=factor)
        return total.contiguous()


def squares(value: Tensor) -> Tensor:
    """(B,) squared norms of (B, ...): of `BLOCK` entries in their own precision, of blocks in float64.

    However many entries there are, float32 loses no more than it may of a block.
    """
    flat = value.flatten(1)
    blocks = flat.shape[1] // BLOCK
    total = torch.linalg.vector_norm(flat[:, blocks * BLOCK :], dim=1).double().square()
    if blocks:
        apart = flat[:, : blocks * BLOCK].unflatten(1, (blocks, BLOCK))
        total = total + torch.linalg.vector_norm(apart, dim=2).double().square().sum(1)
    return total.to(value.dtype)


def weighted_sum(value: Tensor, factors: Tensor, finite: bool) -> Tensor:
    """Sum of ``value`` (B, ...) over examples, each times its own factor; see `Gradients.weighted_sum`."""
    kept = value if finite else torch.nan_to_num(value)
    if kept.dtype == factors.dtype:
        return torch.tensordot(factors, kept, dims=1)
    # some at a time: what was converted is still in the processor's cache where it is read
    pieces = zip(kept.flatten(1).split(CONVERTED), factors.split(CONVERTED), strict=True)
    sums = [gradients.to(weights).T @ weights for gradients, weights in pieces]
    return reduce(torch.add, sums).reshape(kept.shape[1:])


# The gradients of a layer's tensors from the inputs and the gradients at the outputs of its uses, (B, K, ...)
# each, and from the layer's own tensors
Rule = Callable[[Any, list[Tensor], list[Tensor], Tensors], dict[str, Gradients]]


def rule_for(
    layer: nn.Module, outputs: list[torch.Size], copies: int, alone: bool, wide: float = WIDE
) -> Rule:
    """The fastest rule for a layer.

    Args:
        layer: any layer.
        outputs: shape of the output at each use of the layer in a pass, of one copy of an example.
        copies: K.
        alone: whether the rule is called as it is on a CPU, and not within `vmap`.
        wide: see `WIDE`.

    Raises:
        NotImplementedError: there is none.
    """
    if type(layer) not in _RULES or not plain(layer):
        raise NotImplementedError(f"no fast per-example gradient for a layer ({layer})")
    if alone and isinstance(layer, nn.Conv2d):
        work = [2 * copies * layer.weight[0].numel() * output.numel() for output in outputs]
        return _conv_by_example if min(work, default=0) >= wide else partial(_conv, alone=True)
    return _RULES[type(layer)]


def _places(uses: list[Tensor]) -> Tensor:
    """(B, P, C): all places of all uses of a layer that works on the last dimension alone."""
    flat = [use.reshape(len(use), -1, use.shape[-1]) for use in uses]
    return torch.cat(flat, 1) if len(flat) > 1 else flat[0]


def _linear(
    layer: nn.Linear, inputs: list[Tensor], outs: list[Tensor], tensors: Tensors
) -> dict[str, Gradients]:
    right, left = _places(inputs), _places(outs)
    alone = left.shape[1] == 1
    gradients: dict[str, Gradients] = {
        "weight": Outer(left[:, 0], right[:, 0]) if alone else Full(left.transpose(1, 2) @ right)
    }
    if layer.bias is not None:
        gradients["bias"] = Full(left[:, 0] if alone else left.sum(1))
    return gradients


def _embedding(
    layer: nn.Embedding, inputs: list[Tensor], outs: list[Tensor], tensors: Tensors
) -> dict[str, Gradients]:
    tokens, out = _places([use[..., None] for use in inputs])[..., 0], _places(outs)
    # A row's gradients are added up before any norm is taken. The inner products of all pairs of places give
    # the same norm, but where gradients cancel, their rounding could hide one from the clipping.
    same = tokens[:, :, None] == tokens[:, None, :]  # (B, P, P)
    skipped = (same & torch.ones_like(same).tril(-1)).any(2)  # all but a row's first place
    if layer.padding_idx is not None:
        skipped = skipped | (tokens == layer.padding_idx)
    value = (same.to(out) @ out).masked_fill(skipped[..., None], 0.0)
    return {"weight": Rows(layer.num_embeddings, tokens, value)}


def _layer_norm(
    layer: nn.LayerNorm, inputs: list[Tensor], outs: list[Tensor], tensors: Tensors
) -> dict[str, Gradients]:
    out = _places(outs)
    normalized = F.layer_norm(_places(inputs), layer.normalized_shape, eps=layer.eps)
    gradients: dict[str, Gradients] = {"weight": Full((out * normalized).sum(1))}
    if layer.bias is not None:
        gradients["bias"] = Full(out.sum(1))
    return gradients


def _each_use(rule: Callable[[Any, Tensor, Tensor, Tensors], Tensors]) -> Rule:
    """The rule of a layer whose gradients are written out for one use of an image and added up."""

    def added(
        layer: nn.Module, inputs: list[Tensor], outs: list[Tensor], tensors: Tensors
    ) -> dict[str, Gradients]:
        uses = []
        for use, out in zip(inputs, outs, strict=True):
            copies = out.shape[1]
            gradients = rule(layer, use.flatten(0, 1), out.flatten(0, 1), tensors)
            uses.append(
                {
                    key: value if copies == 1 else value.unflatten(0, (-1, copies)).sum(1)
                    for key, value in gradients.items()
                }
            )
        return {key: Full(reduce(torch.add, [use[key] for use in uses])) for key in uses[0]}

    return added


def _conv(
    layer: nn.Conv2d, inputs: list[Tensor], outs: list[Tensor], tensors: Tensors, alone: bool = False
) -> dict[str, Gradients]:
    """Products of what the kernel sees and the gradients at the output, of some examples at a time."""
    lying = alone and inputs[0].flatten(0, 1).is_contiguous(memory_format=torch.channels_last)
    last = lying and layer.in_channels * layer.kernel_size[1] >= TOGETHER
    weights, copies = [], outs[0].shape[1]
    for use, out in zip(inputs, outs, strict=True):
        size = max(1, CACHED // (layer.weight[0].numel() * out[0, 0, 0].numel()))
        pieces = zip(use.flatten(0, 1).split(size), out.flatten(0, 1).split(size), strict=True)
        parts = [_products(layer, *piece, last) for piece in pieces]
        weight = torch.cat(parts) if len(parts) > 1 else parts[0]
        weights.append(weight if copies == 1 else weight.unflatten(0, (-1, copies)).sum(1))
    gradients: dict[str, Gradients] = {"weight": Full(reduce(torch.add, weights), last)}
    if layer.bias is not None:
        gradients["bias"] = Full(_at_outputs(outs))
    return gradients


def _at_outputs(outs: list[Tensor]) -> Tensor:
    """(B, O) gradients of a bias, which is added to every channel O of images (B, K, O, H, W)."""
    return reduce(torch.add, [out.sum((1, 3, 4)) for out in outs])


def _products(layer: nn.Conv2d, inputs: Tensor, out: Tensor, last: bool) -> Tensor:
    """(B, O, I, K, K), or (B, O, K, K, I): one batch of matrix products, its patches written out."""
    left, seen = out.flatten(2), windows(layer, inputs)  # (B, O, P) and (B, I, H', W', K, K)
    if last:
        right = seen.permute(0, 2, 3, 4, 5, 1).flatten(3).flatten(1, 2)  # (B, P, K K I)
        return torch.bmm(left, right).unflatten(2, (*layer.kernel_size, -1))
    right = seen.permute(0, 1, 4, 5, 2, 3).flatten(4).flatten(1, 3)  # (B, I K K, P)
    if left.shape[1] < right.shape[1]:
        weight = torch.bmm(left, right.transpose(1, 2))
    else:
        weight = torch.bmm(right, left.transpose(1, 2)).transpose(1, 2)
    return weight.unflatten(2, layer.weight.shape[1:])


def windows(layer: nn.Conv2d, inputs: Tensor) -> Tensor:
    """(B, I, H', W', K, K): what the kernel sees at each place, a view.

    To be copied once; `F.unfold` walks the examples one by one, which on a busy CPU takes 50 times as long.
    """
    assert not isinstance(layer.padding, str), "ruled out by `plain`"
    (down, across), (above, beside) = layer.stride, layer.padding
    padded = F.pad(inputs, (beside, beside, above, above)) if above or beside else inputs
    height, width = layer.kernel_size
    return padded.unfold(2, height, down).unfold(3, width, across)


def _conv_by_example(
    layer: nn.Conv2d, inputs: list[Tensor], outs: list[Tensor], tensors: Tensors
) -> dict[str, Gradients]:
    """A convolution an example, with nothing but its gradient written out."""

    def gradient(inputs: Tensor, out: Tensor) -> Tensor:
        backward = torch.ops.aten.convolution_backward
        options = (layer.stride, layer.padding, layer.dilation, False, (0, 0), layer.groups)
        return backward(out, inputs, tensors["weight"], None, *options, (False, True, False))[1]

    values = [
        reduce(torch.Tensor.add_, [gradient(*use) for use in zip(*of_example, strict=True)])
        for of_example in zip(zip(*inputs, strict=True), zip(*outs, strict=True), strict=True)
    ]
    gradients: dict[str, Gradients] = {"weight": Listed(values)}
    if layer.bias is not None:
        gradients["bias"] = Full(_at_outputs(outs))
    return gradients


def _affine(normalized: Tensor, out: Tensor) -> tuple[Tensor, Tensor]:
    """(B, C) gradients of scale and shift."""
    places = tuple(range(2, out.dim()))
    return (out * normalized).sum(places) if places else out * normalized, out.sum(places) if places else out


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


def plain(layer: nn.Module) -> bool:
    """Whether a rule has the layer's case."""
    if isinstance(layer, nn.Conv2d):
        zeros = layer.padding_mode == "zeros" and not isinstance(layer.padding, str)
        return zeros and layer.groups == 1 and layer.dilation == (1, 1)
    if isinstance(layer, nn.LayerNorm):
        return len(layer.normalized_shape) == 1
    if isinstance(layer, nn.Embedding):
        return layer.max_norm is None and not layer.scale_grad_by_freq
    return True
