"""Per-example gradients of one layer, from its inputs and the gradients at its outputs.

A network may use a layer several times. A rule takes the layer's inputs and output gradients, a tensor
(B, ...) of B examples for each use, and adds up the gradients of all uses. Inputs and outputs of a layer in
an example's pass depend on this example only, in all their dimensions. A rule's result gives the examples'
norms and a weighted sum, and need not hold the gradients themselves. The sum uses the gradients whose norms
were computed, and never computes them again: then no rounding error lets an example add more than its clipped
vector.
"""

from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.func import vjp
from torch.nn import functional as F

from dprepro.clipping.functional import Tensors
from dprepro.clipping.normalization import BatchStatistics

# Floats of patches that are written out at once, which fit into a CPU's cache
CACHE_FLOATS = 1_000_000
# Entries whose squares are summed in float32, and gradients that are converted to float64 at once
BLOCK, CONVERTED_AT_ONCE = 1024, 16
# Smallest number of contiguous floats for which patches are copied faster with channels last
CONTIGUOUS_FLOATS = 16


class Gradients(Protocol):
    """Per-example gradients of a tensor."""

    def square_norms(self) -> Tensor:
        """(B,) squared L2 norm of each example's gradient."""

    def weighted_sum(self, factors: Tensor, finite: bool) -> Tensor:
        """Sum of the examples' gradients times ``factors`` (B,), in the precision of ``factors``.

        ``finite``: whether every example's norm is finite. If not, examples without a finite norm add
        nothing; their factors must be 0.
        """


class Outer(NamedTuple):
    """Per-example gradients of a matrix (O, I): outer products left x right, never held in memory."""

    left: Tensor  # (B, O)
    right: Tensor  # (B, I)

    def square_norms(self) -> Tensor:
        """Squared Frobenius norms: products of the two vectors' squared norms.

        Norms are computed in double precision. In single precision the square of a tiny vector would be 0,
        and its product with a huge vector could pass unclipped.

        Returns:
            (B,) in the vectors' precision.
        """
        left, right = (torch.linalg.vector_norm(side, dim=1, dtype=torch.float64) for side in self)
        return (left * right).square().to(self.left.dtype)

    def weighted_sum(self, factors: Tensor, finite: bool) -> Tensor:
        """(O, I) weighted sum over examples, by one matrix product."""
        left, right = self if finite else (torch.nan_to_num(side) for side in self)
        return (left * factors[:, None]).T @ right.to(factors)


class AtOutputs(NamedTuple):
    """Per-example gradients left^T right of a matrix (O, I), if an example's loss depends on all J outputs.

    It does if the J examples of a batch share statistics. No example's gradient is held in memory. Norms are
    computed from inner products of the J inputs (the ghost norm of Li et al. 2022, arXiv:2110.05679). Only
    ``left`` is summed over examples; the caller multiplies this sum by ``right``.
    """

    left: Tensor  # (B, J, O) gradient of each example's loss at the outputs of all J
    products: Tensor  # (J, J) right right^T for the inputs right (J, I) of all J

    def square_norms(self) -> Tensor:
        """(B,) squared Frobenius norms, summed in double precision."""
        mixed = torch.bmm(self.products.expand(len(self.left), -1, -1), self.left)
        return (mixed * self.left).sum((1, 2), dtype=torch.float64).clamp_min(0).to(self.left.dtype)

    def weighted_sum(self, factors: Tensor, finite: bool) -> Tensor:
        """(J, O) sum of ``left`` over examples, each times its factor."""
        return weighted_sum(self.left, factors, finite)


class Rows(NamedTuple):
    """Per-example gradients of an embedding table (V, E), in the few rows that an example looks up."""

    total: int  # V
    tokens: Tensor  # (B, P) row of the table at each of P places
    value: Tensor  # (B, P, E) gradients of these rows; for a repeated row, at its first place only

    def square_norms(self) -> Tensor:
        """(B,) squared L2 norms; see `Gradients`."""
        return squares(self.value)

    def weighted_sum(self, factors: Tensor, finite: bool) -> Tensor:
        """(V, E) weighted sum over examples, by the table's ordinary backward pass."""
        value = self.value if finite else torch.nan_to_num(self.value)
        weighted = value * factors[:, None, None]
        table = weighted.new_zeros(self.total, value.shape[2])
        pullback = vjp(lambda table: F.embedding(self.tokens, table), table)[1]
        return pullback(weighted)[0]


class Full(NamedTuple):
    """Per-example gradients in one tensor."""

    value: Tensor  # (B, ...)
    channels_last: bool = False  # whether `value` is of a kernel with input channels last, (B, O, K, K, I)

    def square_norms(self) -> Tensor:
        """(B,) squared L2 norms; see `Gradients`."""
        return squares(self.value)

    def weighted_sum(self, factors: Tensor, finite: bool) -> Tensor:
        """Weighted sum over examples; see `Gradients`."""
        total = weighted_sum(self.value, factors, finite)
        return total.permute(0, 3, 1, 2).contiguous() if self.channels_last else total


class OuterSums(NamedTuple):
    """Per-example gradients left^T right of a matrix (O, I) that an example uses at P positions."""

    left: Tensor  # (B, P, O)
    right: Tensor  # (B, P, I)

    def held(self, place: slice) -> Full:
        """Gradients of consecutive examples, in memory."""
        return Full(torch.bmm(self.left[place].transpose(1, 2), self.right[place]))


def is_large(gradients: Gradients) -> bool:
    """Return whether sums of many parts in float32 take less time than one sum in float64."""
    if isinstance(gradients, Outer):
        return gradients.left.shape[1] * gradients.right.shape[1] > CACHE_FLOATS // 8
    return isinstance(gradients, Full) and gradients.value.numel() > CACHE_FLOATS


def of_examples(gradients: Any, place: slice, copied: bool = True) -> Gradients:
    """Gradients of consecutive examples, by default copied to memory of their own.

    A matrix product may round differently if its factors lie at another memory offset. Without the copy,
    one more example in one part of a batch could change the sums of later parts.

    Args:
        gradients: one of `Outer`, `Rows` and `Full`, whose tensors are (B, ...).
        place: slice of the examples.
        copied: whether to copy them.

    Returns:
        Gradients of the same kind.
    """
    values = (value[place] if isinstance(value, Tensor) else value for value in gradients)
    part: Gradients = type(gradients)(
        *(value.clone() if copied and isinstance(value, Tensor) else value for value in values)
    )
    return part


def squares(value: Tensor) -> Tensor:
    """Squared L2 norms, summed within blocks of `BLOCK` entries in ``value``'s precision, then in float64.

    So the relative error of float32 is at most that of one block, for any number of entries.

    Args:
        value: (B, ...).

    Returns:
        (B,) squared norms.
    """
    flat = _flat(value)
    blocks, rest = divmod(flat.shape[1], BLOCK)
    if not blocks:
        return torch.linalg.vector_norm(flat, dim=1).square()
    block_values = flat[:, : blocks * BLOCK].view(-1, blocks, BLOCK)
    total = torch.linalg.vector_norm(block_values, dim=2).double().square().sum(1)
    if rest:
        total += torch.linalg.vector_norm(flat[:, -rest:], dim=1).double().square()
    return total.to(value.dtype)


def weighted_sum(value: Tensor, factors: Tensor, finite: bool) -> Tensor:
    """Sum over examples of ``value`` (B, ...) times ``factors`` (B,); see `Gradients.weighted_sum`."""
    values = value if finite else torch.nan_to_num(value)
    if values.dtype == factors.dtype:
        return (factors[None] @ _flat(values)).reshape(values.shape[1:])
    # some at a time, so that converted values are still in the CPU's cache when they are read
    at_once = max(CONVERTED_AT_ONCE, CACHE_FLOATS // 8 // max(1, value[:1].numel()))
    pieces = zip(_flat(values).split(at_once), factors.split(at_once), strict=True)
    sums = [gradients.to(weights).T @ weights for gradients, weights in pieces]
    return reduce(torch.add, sums).reshape(values.shape[1:])


def _flat(value: Tensor) -> Tensor:
    """(B, D) entries of ``value`` (B, ...); D is 1 for (B,), of a parameter that is a number."""
    return value.flatten(1) if value.dim() > 1 else value[:, None]


# Gradients of a layer's tensors, from the inputs and the gradients at the outputs of its uses, (B, ...) each,
# and from the layer's own tensors
Rule = Callable[[Any, list[Tensor], list[Tensor], Tensors], Mapping[str, Gradients | OuterSums]]


def rule_for(layer: nn.Module) -> Rule:
    """Rule for a layer's gradients.

    Args:
        layer: a layer with trained parameters.

    Returns:
        The rule.

    Raises:
        NotImplementedError: there is no rule for this kind of layer.
    """
    if type(layer) not in _RULES or not is_supported(layer):
        raise NotImplementedError(f"no fast per-example gradient for a layer ({layer})")
    return _RULES[type(layer)]


def _flat_positions(uses: list[Tensor]) -> Tensor:
    """(B, P, C) tensor of P positions: all uses of a layer that acts on the last dimension (C) only."""
    flat = [use if use.dim() == 3 else use.reshape(len(use), -1, use.shape[-1]) for use in uses]
    return torch.cat(flat, 1) if len(flat) > 1 else flat[0]


def products_of(
    inputs: list[Tensor], output_gradients: list[Tensor]
) -> tuple[Gradients | OuterSums, Gradients]:
    """Gradients of a matrix and a bias, from inputs and gradients at outputs of a product's uses."""
    right, left = _flat_positions(inputs), _flat_positions(output_gradients)
    if left.shape[1] == 1:
        return Outer(left[:, 0], right[:, 0]), Full(left[:, 0])
    return OuterSums(left, right), Full(left.sum(1))


def _linear(
    layer: nn.Linear, inputs: list[Tensor], output_gradients: list[Tensor], tensors: Tensors
) -> dict[str, Gradients | OuterSums]:
    weight, bias = products_of(inputs, output_gradients)
    return {"weight": weight} if layer.bias is None else {"weight": weight, "bias": bias}


def _embedding(
    layer: nn.Embedding, inputs: list[Tensor], output_gradients: list[Tensor], tensors: Tensors
) -> dict[str, Gradients]:
    tokens, output_gradient = (
        _flat_positions([use[..., None] for use in inputs])[..., 0],
        _flat_positions(output_gradients),
    )
    # A row's gradients are added before any norm is computed. The inner products of all pairs of places would
    # give the same norm. But if gradients cancel, rounding could hide a gradient from the clipping.
    same_token = tokens[:, :, None] == tokens[:, None, :]  # (B, P, P)
    skipped = (same_token & torch.ones_like(same_token).tril(-1)).any(2)  # all but a row's first place
    if layer.padding_idx is not None:
        skipped = skipped | (tokens == layer.padding_idx)
    value = (same_token.to(output_gradient) @ output_gradient).masked_fill(skipped[..., None], 0.0)
    return {"weight": Rows(layer.num_embeddings, tokens, value)}


def _layer_norm(
    layer: nn.LayerNorm, inputs: list[Tensor], output_gradients: list[Tensor], tensors: Tensors
) -> dict[str, Gradients]:
    output_gradient = _flat_positions(output_gradients)
    normalized = F.layer_norm(_flat_positions(inputs), layer.normalized_shape, eps=layer.eps)
    gradients: dict[str, Gradients] = {"weight": Full((output_gradient * normalized).sum(1))}
    if layer.bias is not None:
        gradients["bias"] = Full(output_gradient.sum(1))
    return gradients


def _summed_over_uses(rule: Callable[[Any, Tensor, Tensor, Tensors], Tensors]) -> Rule:
    """Rule for a layer that an example uses several times: the sum of the uses' gradients by ``rule``."""

    def summed_rule(
        layer: nn.Module, inputs: list[Tensor], output_gradients: list[Tensor], tensors: Tensors
    ) -> dict[str, Gradients]:
        uses = []
        for use, output_gradient in zip(inputs, output_gradients, strict=True):
            rows = output_gradient.shape[1]
            gradients = rule(layer, use.flatten(0, 1), output_gradient.flatten(0, 1), tensors)
            uses.append(
                {
                    key: value if rows == 1 else value.unflatten(0, (-1, rows)).sum(1)
                    for key, value in gradients.items()
                }
            )
        return {key: Full(reduce(torch.add, [use[key] for use in uses])) for key in uses[0]}

    return summed_rule


def _conv(
    layer: nn.Conv2d, inputs: list[Tensor], output_gradients: list[Tensor], tensors: Tensors
) -> dict[str, Gradients]:
    """Gradients as products of the inputs' windows and the output's gradients, in groups of examples."""
    inputs, output_gradients = _images(inputs), _images(output_gradients)
    is_channels_last = inputs[0].flatten(0, 1).is_contiguous(memory_format=torch.channels_last)
    channels_last = is_channels_last and layer.in_channels * layer.kernel_size[1] >= CONTIGUOUS_FLOATS
    weights = []
    for use, output_gradient in zip(inputs, output_gradients, strict=True):
        size = max(1, CACHE_FLOATS // (layer.weight[0].numel() * output_gradient[0, 0, 0].numel()))
        pieces = zip(use.flatten(0, 1).split(size), output_gradient.flatten(0, 1).split(size), strict=True)
        parts = [_products(layer, *piece, channels_last) for piece in pieces]
        weight = torch.cat(parts) if len(parts) > 1 else parts[0]
        images = output_gradient.shape[1]
        weights.append(weight if images == 1 else weight.unflatten(0, (-1, images)).sum(1))
    gradients: dict[str, Gradients] = {"weight": Full(reduce(torch.add, weights), channels_last)}
    if layer.bias is not None:
        # a bias is added to its channel in images (B, K, O, H, W)
        gradients["bias"] = Full(reduce(torch.add, [use.sum((1, 3, 4)) for use in output_gradients]))
    return gradients


def _images(uses: list[Tensor]) -> list[Tensor]:
    """(B, n, C, H, W) tensors of n images per example; a use of shape (B, C, H, W) gets n = 1."""
    return [use[:, None] if use.dim() == 4 else use for use in uses]


def _products(layer: nn.Conv2d, inputs: Tensor, output_gradient: Tensor, channels_last: bool) -> Tensor:
    """(B, O, I, K, K) gradients of a K x K kernel; with ``channels_last`` (B, O, K, K, I)."""
    left, patches = output_gradient.flatten(2), windows(layer, inputs)  # (B, O, P) and (B, I, H', W', K, K)
    if channels_last:
        right = patches.permute(0, 2, 3, 4, 5, 1).flatten(3).flatten(1, 2)  # (B, P, K K I)
        return torch.bmm(left, right).unflatten(2, (*layer.kernel_size, -1))
    right = patches.permute(0, 1, 4, 5, 2, 3).flatten(4).flatten(1, 3)  # (B, I K K, P)
    if left.shape[1] < right.shape[1]:
        weight = torch.bmm(left, right.transpose(1, 2))
    else:
        weight = torch.bmm(right, left.transpose(1, 2)).transpose(1, 2)
    return weight.unflatten(2, layer.weight.shape[1:])


def windows(layer: nn.Conv2d, inputs: Tensor) -> Tensor:
    """Windows of the inputs that a convolution's kernel sees at each output pixel.

    The view is copied once. `F.unfold` loops over the examples, which takes 50 times as long on a busy CPU.

    Args:
        layer: the convolution.
        inputs: (B, I, H, W).

    Returns:
        (B, I, H', W', K, K), a view: K x K windows at H' x W' output pixels.
    """
    assert not isinstance(layer.padding, str), "excluded by `is_supported`"
    (row_stride, column_stride), (row_padding, column_padding) = layer.stride, layer.padding
    padded = inputs
    if row_padding or column_padding:
        padded = F.pad(inputs, (column_padding, column_padding, row_padding, row_padding))
    height, width = layer.kernel_size
    return padded.unfold(2, height, row_stride).unfold(3, width, column_stride)


def _affine(normalized: Tensor, output_gradient: Tensor) -> tuple[Tensor, Tensor]:
    """(B, C) gradients of scale and shift of C channels."""
    dims = tuple(range(2, output_gradient.dim()))
    scale, shift = output_gradient * normalized, output_gradient
    return (scale.sum(dims), shift.sum(dims)) if dims else (scale, shift)


def _group_norm(layer: nn.GroupNorm, inputs: Tensor, output_gradient: Tensor, tensors: Tensors) -> Tensors:
    weight, bias = _affine(F.group_norm(inputs, layer.num_groups, eps=layer.eps), output_gradient)
    return {"weight": weight, "bias": bias}


def _batch_statistics(
    layer: BatchStatistics, inputs: Tensor, output_gradient: Tensor, tensors: Tensors
) -> Tensors:
    mean, var = tensors["mean"], tensors["var"]
    weight, bias = _affine(layer.normalized(inputs, mean, var), output_gradient)
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
    nn.GroupNorm: _summed_over_uses(_group_norm),
    BatchStatistics: _summed_over_uses(_batch_statistics),
}


def is_supported(layer: nn.Module) -> bool:
    """Return whether a rule covers the layer's options."""
    if isinstance(layer, nn.Conv2d):
        zeros = layer.padding_mode == "zeros" and not isinstance(layer.padding, str)
        return zeros and layer.groups == 1 and layer.dilation == (1, 1)
    if isinstance(layer, nn.LayerNorm):
        return len(layer.normalized_shape) == 1
    if isinstance(layer, nn.Embedding):
        return layer.max_norm is None and not layer.scale_grad_by_freq
    return True
