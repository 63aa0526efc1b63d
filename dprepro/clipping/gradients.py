"""Sums of clipped per-example gradients: reference ways, and a fast way with equal results.

``tensors`` holds, by name, every parameter *and* buffer of the network that gets a gradient. So statistics of
a normalisation layer (`BatchStatistics`) are among its names.
"""

import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import InitVar, dataclass
from functools import reduce
from itertools import accumulate, islice
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.func import grad, vmap
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from dprepro.clipping.functional import (
    Inputs,
    Tensors,
    a_tensor,
    channels_last,
    of_each,
    split,
    wants_channels_last,
)
from dprepro.clipping.layer_gradients import (
    Full,
    Gradients,
    OuterSums,
    is_large,
    of_examples,
    products_of,
    rule_for,
)
from dprepro.clipping.layers import trained_layers, watch_layers
from dprepro.clipping.limits import ClipLimits
from dprepro.clipping.network_state import call, fresh_state
from dprepro.clipping.products import OPENED, OnUse, Products, bias_of, matrices
from dprepro.errors import UserError, printable

# Largest size of activations, in floats, for which a pass of several parts may have more examples than usual
CACHED_FLOATS = 2_000_000
# Largest size of per-example gradients in one pass of `BookKeeping` on a CPU, in floats, and fewest examples
# of a pass; larger passes are no faster
MOST_FLOATS, FEWEST_EXAMPLES = 24_000_000, 8
# Largest size, in floats, of per-example gradients that stay in a CPU's cache and in malloc's memory
HELD_FLOATS = 6_400_000
# Largest size, in floats, of a group of `OuterSums`, and examples of a pass whose activations are large
GROUP_FLOATS, USUAL = 1_000_000, 128
# Most sums of small matrix products in float32 that take less time than one in float64
MOST_SUMS = 8
# Smallest bound to which a part of a gradient is clipped. With smaller bounds, factors C / norm are below the
# normal numbers of float32, and their rounding would make clipped vectors too long, or their noise 0
LEAST_BOUND = 1e-18
# Layers whose first dimension is of examples, and whose output for an example depends on no other example
BY_EXAMPLE = {
    *(nn.Sequential, nn.Identity, nn.Flatten, nn.Linear, nn.Conv2d, nn.GroupNorm),
    *(nn.ReLU, nn.Tanh, nn.MaxPool2d),
}
HOOKS = tuple(name for name in vars(nn.Module()) if name.endswith("_hooks"))
# `vmap` runs some operations one example at a time, such as pools of images with channels last, which is
# correct too
warnings.filterwarnings("ignore", "There is a performance drop because we have not yet implemented the batch")
# Loss () of one example, from its outputs (K,) and its label
Loss = Callable[[Tensor, Tensor], Tensor]
Uses = dict[str, list[Tensor]]  # tensors of each use of a layer in one pass, by the layer's name


class ClippedSum(NamedTuple):
    """Clipped sum of a batch, and private quantities that are not released."""

    sums: Tensors  # sum over examples of the clipped gradient; the shapes of `tensors`
    norms: Tensor  # (B, G) L2 norm of each part of each example's gradient before clipping
    losses: Tensor  # (B,) loss of each example, the mean over its copies

    @classmethod
    def of(cls, parts: "Iterable[ClippedSum]") -> "ClippedSum":
        """Clipped sum of a batch from the sums of its ``parts``, added in place into the first one."""
        totals: Tensors = {}
        units = []
        for sums, *norms_and_losses in parts:
            totals = {name: totals[name].add_(value) for name, value in sums.items()} if totals else sums
            units.append(norms_and_losses)
        norms, losses = (torch.cat(each) if len(each) > 1 else each[0] for each in zip(*units, strict=True))
        return cls(totals, norms, losses)


class Parts(NamedTuple):
    """Division of a batch into parts with separate sums: rounding in a part doesn't depend on other parts."""

    sizes: tuple[int, ...]  # of the parts, in the order of the batch
    in_float64: bool  # whether the parts' sums are added in float64
    # False: rounding may depend on other parts; then sums in float64 may be of the whole batch
    separate: bool = True
    together: int = 1  # parts whose sums are added in float32, before the total of all is added in float64

    @classmethod
    def of(cls, count: int, size: int, together: int = 1) -> "Parts":
        """Similar parts of up to ``size`` of ``count`` examples: few numbers are added in float32."""
        number = max(1, math.ceil(count / size))
        return cls(
            tuple(count // number + (place < count % number) for place in range(number)),
            True,
            False,
            together,
        )


class Measured(NamedTuple):
    """What a network's layers, and its call on one example, show."""

    shapes: dict[str, list[torch.Size]]  # of the outputs of a trained layer's uses, by the layer's name
    channels_last: bool  # whether images have their channels last in memory
    examples_per_pass: int  # most examples of a pass, and of a pass of several parts
    held_examples: int  # most whose per-example gradients of convolutions stay in a cache
    cached_examples: int  # most whose activations stay in a cache


def loss_of(outputs: Tensor, labels: Tensor, reduction: str = "mean", loss: Loss | None = None) -> Tensor:
    """Cross-entropy of (B, K) outputs for classes (B,), or squared error of (B, 1) for numbers (B,).

    Args:
        outputs: (B, K) outputs of the network.
        labels: (B, ...) labels.
        reduction: 'mean', or 'none' for the losses (B,).
        loss: another loss, which runs on one example under `vmap`.

    Returns:
        The mean loss, or all losses.

    Raises:
        UserError: ``loss`` fails, or is no number for one example.
    """
    if loss is not None:
        try:
            # a copy, because a change in place would change the gradients at the network's outputs
            losses: Tensor = vmap(loss, randomness="different")(outputs.clone(), labels)
        except Exception as problem:  # the loss may raise any exception
            shapes = f"outputs {tuple(outputs.shape[1:])} and label {tuple(labels.shape[1:])}"
            text = printable(str(problem).split("\n")[0])
            raise UserError(f"loss: of one example, with {shapes}: {text}") from problem
        if losses.shape != outputs.shape[:1]:
            raise UserError(f"loss: of shape {tuple(losses.shape[1:])} for one example; allowed: ()")
        return losses if reduction == "none" else losses.mean()
    if not labels.is_floating_point():
        return F.cross_entropy(outputs, labels, reduction=reduction)
    errors = (outputs[:, 0] - labels).square()
    return errors if reduction == "none" else errors.mean()


class Clipper(Protocol):
    """Function that computes a `ClippedSum`.

    Shapes: inputs (B K, ...), maybe several by keyword, with the K augmented copies of an example one after
    the other; labels (B,); mask (B,). The clipper fixes K. The gradients of an example's copies are averaged
    before clipping (De et al. 2022; Sander et al. 2022, Eq. 5). The mask is 0 for padding, and 1 or a weight
    for an example. The weight scales the example's gradient before it is clipped. Bounds are in the order of
    ``tensors``.
    """

    def __call__(
        self, tensors: Tensors, inputs: Any, labels: Tensor, mask: Tensor, bounds: ClipLimits
    ) -> ClippedSum:
        """Clipped sum of one batch."""


def clip_factors(
    squares: Tensor, mask: Tensor, bounds: ClipLimits, finite: bool = False
) -> tuple[Tensor, Tensor]:
    """Factor min(w, C / norm) of each part of each example (Abadi et al. 2016, Alg. 1); 0 for padding.

    A gradient g with norm n and weight w contributes w g, clipped to C. This is g times min(w, C / n).

    A part that is not finite can't be clipped; its factor is 0. The caller must also replace its values
    (`nan_to_num`), because 0 times infinity is not 0. Then the part adds nothing. A part with a bound below
    `LEAST_BOUND` adds nothing either.

    Args:
        squares: (B, T) squared L2 norm of each tensor of each example's gradient.
        mask: (B,) weight w of each example, 1 in general; 0 for padding.
        bounds: bounds of the T tensors.
        finite: whether all squares are known to be finite; if False, each is checked.

    Returns:
        (B, T) factors of the tensors, equal within a part; (B, G) norms of the parts.
    """
    squares = squares.to(bounds.members)
    if finite:
        norms = (squares @ bounds.members).sqrt()
    else:
        # separate from the sums, in which infinity times 0 would spoil the norms of other parts
        not_finite = (~torch.isfinite(squares)).to(squares) @ bounds.members > 0
        norms = (torch.where(torch.isfinite(squares), squares, 0.0) @ bounds.members).sqrt()
        norms = torch.where(not_finite, torch.inf, norms)
    limits = torch.where(bounds.limits < LEAST_BOUND, 0.0, bounds.limits)
    # NaN comes from an infinite bound divided by an infinite norm
    factors = torch.minimum(mask[:, None], limits / norms.clamp_min(1e-12))
    return (factors if finite else factors.nan_to_num(0.0)) @ bounds.members.T, norms


def clipped(gradients: Tensors, losses: Tensor, mask: Tensor, bounds: ClipLimits) -> ClippedSum:
    """Clip the per-example ``gradients``, tensors (B, ...), and sum them over the examples."""
    return clip_and_sum({name: Full(value) for name, value in gradients.items()}, losses, mask, bounds)


def clip_and_sum(
    gradients: Mapping[str, Gradients | OuterSums],
    losses: Tensor,
    mask: Tensor,
    bounds: ClipLimits,
    parts: Parts | None = None,
) -> ClippedSum:
    """Clip gradients of examples and sum them.

    Args:
        gradients: gradients of each tensor, in the order of ``bounds``.
        losses: (B,) losses of the examples.
        mask: (B,) weight of each example in the sample, 1 in general; 0 for padding.
        bounds: clipping bounds.
        parts: division of the examples into parts with separate sums; None: one part.

    Returns:
        Sums, norms and losses.
    """
    whole = {name: value for name, value in gradients.items() if not isinstance(value, OuterSums)}
    others = {name: value for name, value in gradients.items() if isinstance(value, OuterSums)}
    groups = [slice(None)]
    if others and parts and not parts.separate and mask.device.type == "cpu":
        # gradients of a group stay in a CPU's cache until they are summed
        floats = sum(value.left.shape[2] * value.right.shape[2] for value in others.values())
        most = max(1, GROUP_FLOATS // floats)
        most = min(most, parts.sizes[0]) if bounds.limits.dtype == torch.float32 else most
        groups = [slice(first, first + most) for first in range(0, len(mask), most)]
    else:
        whole |= {name: value.held(slice(None)) for name, value in others.items()}
        others = {}
    square_norms = torch.stack(
        [whole[name].square_norms() if name in whole else torch.zeros_like(mask) for name in gradients], 1
    )
    order, sums, of_groups = list(gradients), Tensors(), []
    for group in groups:
        # computed once, because other roundings of gradients that cancel could be longer than the norms say
        held = {name: value.held(group) for name, value in others.items()}
        squares = square_norms[group]
        for name, value in held.items():
            squares[:, order.index(name)] = value.square_norms()
        # if the sum is finite, every square is; a GPU would wait for the answer
        finite = squares.device.type == "cpu" and math.isfinite(squares.sum())
        factors, norms = clip_factors(squares, mask[group], bounds, finite)
        of_groups.append((factors, norms))
        for name in others:
            total = held.pop(name).weighted_sum(factors[:, order.index(name)], finite)
            sums[name] = sums[name].add_(total) if name in sums else total.double()
    if len(of_groups) > 1:
        finite = finite and math.isfinite(square_norms.sum())
        factors, norms = (torch.cat(values) for values in zip(*of_groups, strict=True))
    for weights, name in zip(factors.T, order, strict=True):
        if name in whole:
            sums[name] = _sum_of_parts(whole.pop(name), weights, finite, parts)
    return ClippedSum({name: sums[name] for name in order}, norms, losses)


def _sum_of_parts(gradients: Gradients, factors: Tensor, finite: bool, parts: Parts | None) -> Tensor:
    """`Gradients.weighted_sum` of each part, added up."""
    if parts is None:
        return gradients.weighted_sum(factors, finite)
    if not parts.separate:
        if len(parts.sizes) > MOST_SUMS and not is_large(gradients):
            factors = factors.double()
        if len(parts.sizes) == 1 or factors.dtype == torch.float64:
            total = gradients.weighted_sum(factors, finite)
            return total.double() if parts.in_float64 else total
    stops = list(accumulate(parts.sizes))
    places = map(slice, [0, *stops], stops)
    of_parts = (
        of_examples(gradients, place, parts.separate).weighted_sum(factors[place], finite) for place in places
    )
    sums = (reduce(Tensor.add_, islice(of_parts, parts.together - 1), first) for first in of_parts)
    total = next(sums)
    return reduce(Tensor.add_, sums, total.double() if parts.in_float64 else total)


def works_by_example(net: nn.Module) -> bool:
    """Check whether all layers of a network are torch's own and treat each example of a batch (B, ...) alone.

    Such a network needs no `vmap`, and `vmap` takes a quarter of a small network's step.

    Args:
        net: the network.

    Returns:
        True if the network has only layers of `BY_EXAMPLE`, without hooks or custom functions.
    """
    return not torch.nn.modules.module._has_any_global_hook() and all(
        type(layer) in BY_EXAMPLE
        and getattr(layer.forward, "__module__", "").startswith("torch.nn.modules.")
        and getattr(layer, "start_dim", 1) == 1  # of `nn.Flatten`
        and not any(map(vars(layer).get, HOOKS))
        for layer in net.modules()
    )


@dataclass(frozen=True)
class PerExample:
    """Reference clipper: one gradient per example by vmap(grad), then clip, then sum."""

    net: nn.Module
    copies: int = 1  # K
    resets: bool = False  # whether each call gets a copy of the network's state
    loss: Loss | None = None  # None: as in `loss_of`

    def __call__(
        self, tensors: Tensors, inputs: Inputs, labels: Tensor, mask: Tensor, bounds: ClipLimits
    ) -> ClippedSum:
        """Clipped sum of one batch; see `Clipper`."""

        def loss(tensors: Tensors, example: Inputs, label: Tensor) -> tuple[Tensor, Tensor]:
            logits = call(self.net, tensors, example, self.resets)
            value = loss_of(logits, label.expand(self.copies, *label.shape), loss=self.loss)
            return value, value

        examples = of_each(inputs, lambda value: value.unflatten(0, (-1, self.copies)))
        per_example = vmap(grad(loss, has_aux=True), in_dims=(None, 0, 0), randomness="different")
        gradients, losses = per_example(tensors, examples, labels)
        return clipped(gradients, losses, mask, bounds)


@dataclass(frozen=True)
class OneByOne:
    """Definition of the clipped sum: an ordinary backward pass for every example alone, then clip, then sum.

    It is slow, but works for any network that autograd supports, also without `vmap`. Each example gets a
    copy of the network's state: code that branches may change the state for some private inputs only, which
    no test on random inputs shows.
    """

    net: nn.Module
    copies: int = 1  # K
    loss: Loss | None = None  # as in `PerExample`

    def __call__(
        self, tensors: Tensors, inputs: Inputs, labels: Tensor, mask: Tensor, bounds: ClipLimits
    ) -> ClippedSum:
        """Clipped sum of one batch; see `Clipper`."""
        parts = zip(split(inputs, self.copies), labels, mask.split(1), strict=True)
        return ClippedSum.of(self._single_example(tensors, *part, bounds) for part in parts)

    def _single_example(
        self, tensors: Tensors, inputs: Inputs, label: Tensor, mask: Tensor, bounds: ClipLimits
    ) -> ClippedSum:
        # copies, because a network may change its weights in place
        leaves = {name: value.detach().clone().requires_grad_() for name, value in tensors.items()}
        with torch.enable_grad():
            logits = call(self.net, leaves, inputs, resets=True)
            loss = loss_of(logits, label.expand(self.copies, *label.shape), loss=self.loss)
            gradients = torch.autograd.grad(loss, list(leaves.values()), materialize_grads=True)
        batched = {name: value[None] for name, value in zip(leaves, gradients, strict=True)}
        return clipped(batched, loss.detach()[None], mask, bounds)


@dataclass(eq=False)
class BookKeeping:
    """Fast clipper: one forward and backward pass for all examples, then clip and sum layer by layer.

    The network runs as a function of one example, under `torch.func.vmap` over examples with unbatched
    weights. torch's batching rules turn it into ordinary batched kernels, and the network can't mix examples
    by their sizes, lengths or values. A network that `works_by_example` runs on the batch itself. A
    per-example gradient of a layer is a product of the layer's input and the gradient at its output (the
    book-keeping of Bu et al. 2023, arXiv:2210.00038). Per-example gradients of embeddings, and of linear
    layers that each example uses once, are never held in memory in full. Layers without a parameter that has
    `requires_grad` are frozen: they need no rule and cost nothing.
    """

    net: nn.Module
    example: InitVar[Inputs]  # (1, ...)
    copies: int = 1  # K of `Clipper`
    resets: bool = False  # as in `PerExample`
    # take gradients at 'taps', zeros that are added to layers' outputs: slower, but correct if a network
    # changes these outputs in place
    taps: bool = False
    loss: Loss | None = None  # as in `PerExample`
    earlier: InitVar[Measured | None] = None  # by a clipper of an equal network; None: by ``example``

    def __post_init__(self, example: Inputs, earlier: Measured | None) -> None:
        """Find the layers' rules.

        Raises:
            NotImplementedError: a trainable layer has no rule here, isn't used, or shares a parameter with
                another; `PerExample` supports every network.
        """
        self.on_cpu = a_tensor(example).device.type == "cpu"
        self.by_example = not self.taps and works_by_example(self.net)
        layers = trained_layers(self.net)
        self.layers = {name: layer for name, layer in layers.items() if type(layer) not in OPENED}
        self.rules = {name: rule_for(layer) for name, layer in self.layers.items()}
        self.matrices = matrices(layers)
        self.measured = earlier or self._measure(example)

    def _measure(self, example: Inputs) -> Measured:
        """Call the network on ``example`` (1, ...)."""
        net, copies, activations = self.net, self.copies, 0
        shapes: dict[str, list[torch.Size]] = {name: [] for name in (*self.layers, *self.matrices)}

        def record(name: str, inputs: Tensor, output: Tensor) -> None:
            shapes[name].append(output.shape)

        def count(name: str, *values: object) -> None:
            nonlocal activations
            activations += values[-1].numel() if isinstance(values[-1], Tensor) else 0

        parts = {name: layer for name, layer in net.named_modules() if not list(layer.children())}
        with torch.no_grad(), fresh_state(net), self._watched(record), watch_layers(parts, count):
            call(net, {}, of_each(example, lambda value: value.expand(copies, *value.shape[1:])), False)
        for name, outputs in shapes.items():
            if not outputs:
                raise NotImplementedError(f"no fast per-example gradient for layer {name!r}: it isn't used")
        kernels = [layer.weight.numel() for layer in self.layers.values() if isinstance(layer, nn.Conv2d)]
        return Measured(
            shapes,
            self.on_cpu and wants_channels_last(net),
            max(FEWEST_EXAMPLES, MOST_FLOATS // max(1, sum(kernels))),
            max(FEWEST_EXAMPLES, HELD_FLOATS // max(1, sum(kernels))),
            CACHED_FLOATS // max(1, activations),
        )

    @contextmanager
    def _watched(self, on_use: OnUse) -> Iterator[None]:
        """Call ``on_use`` at each use of a layer with a rule, and of a matrix in other layers."""
        inside = Products(self.matrices, on_use) if self.matrices else nullcontext()
        with watch_layers(self.layers, on_use), inside:
            yield

    def pass_size(self, usual: int) -> int:
        """Largest number of examples in a pass of several parts; other passes have at most ``usual``."""
        if not self.on_cpu:
            return usual
        return min(max(usual, self.measured.cached_examples), self.measured.examples_per_pass)

    def __call__(
        self,
        tensors: Tensors,
        inputs: Inputs,
        labels: Tensor,
        mask: Tensor,
        bounds: ClipLimits,
        parts: Parts | None = None,
    ) -> ClippedSum:
        """Clipped sum of one batch, in one pass if it has separate ``parts``; see `Clipper`."""
        separate = parts is not None and parts.separate
        at_once = self.measured.examples_per_pass
        if parts:
            at_once = min(at_once, self.measured.held_examples, max(self.measured.cached_examples, USUAL))
        if separate or not self.on_cpu or len(labels) <= at_once:
            return self._one_pass(tensors, inputs, labels, mask, bounds, parts)
        pieces = math.ceil(len(labels) / at_once)
        size = math.ceil(len(labels) / pieces)
        batches = zip(split(inputs, size * self.copies), labels.split(size), mask.split(size), strict=True)
        return ClippedSum.of(
            self._one_pass(
                tensors, *batch, bounds, parts and Parts.of(len(batch[1]), parts.sizes[0], parts.together)
            )
            for batch in batches
        )

    def _one_pass(
        self,
        tensors: Tensors,
        inputs: Inputs,
        labels: Tensor,
        mask: Tensor,
        bounds: ClipLimits,
        parts: Parts | None = None,
    ) -> ClippedSum:
        losses, uses, gradients_at_outputs = self._backward(tensors, inputs, labels)
        gradients: dict[str, Gradients | OuterSums] = {}
        for name, layer in self.layers.items():
            layer_tensors = {
                key: tensors.get(f"{name}.{key}", value)
                # not `state_dict`, which takes a twentieth of a small network's step
                for key, value in (*layer._parameters.items(), *layer._buffers.items())
                if value is not None
            }
            layer_gradients = self.rules[name](
                layer, uses.pop(name), gradients_at_outputs.pop(name), layer_tensors
            )
            for key, value in layer_gradients.items():
                if f"{name}.{key}" in tensors:  # fixed tensors are no part of the clipped vector
                    gradients[f"{name}.{key}"] = value
        for name in self.matrices:
            of_matrix = products_of(uses.pop(name), gradients_at_outputs.pop(name))
            gradients[name], gradients[bias_of(name)] = of_matrix
        ordered = {name: gradients.pop(name) for name in tensors}
        return clip_and_sum(ordered, losses, mask, bounds, parts)

    def _backward(self, tensors: Tensors, inputs: Inputs, labels: Tensor) -> tuple[Tensor, Uses, Uses]:
        """Losses (B,); for each use of a layer, inputs and the gradients at outputs, (B, ...) each."""
        with torch.enable_grad():
            # only gradients at outputs are needed; leaves make outputs part of a graph
            leaves, net_inputs = tensors, inputs
            if self.measured.channels_last:
                net_inputs = of_each(inputs, channels_last)
                # one-channel images have both layouts; under `vmap` their layout comes from the kernels
                leaves = {
                    name: channels_last(value) if value.shape[1:2] == (1,) else value
                    for name, value in tensors.items()
                }
            leaves = {name: value.detach().requires_grad_() for name, value in leaves.items()}
            taps = self._taps(tensors, len(labels)) if self.taps else None
            for tap in all_uses(taps or {}):
                tap.requires_grad_()
            total, (losses, uses, outputs) = self._forward(leaves, net_inputs, labels, taps)
            parts = iter(torch.autograd.grad(total, all_uses(taps or outputs), materialize_grads=True))
        return (
            losses.detach(),
            {name: [self._of_examples(use.detach()) for use in layer] for name, layer in uses.items()},
            {name: [self._of_examples(next(parts)) for _ in layer] for name, layer in uses.items()},
        )

    def _of_examples(self, use: Tensor) -> Tensor:
        """(B, K, ...) tensor of a layer's use, which is (B K, ...) if the network ran on the whole batch."""
        return use.unflatten(0, (-1, self.copies)) if self.by_example else use

    def _taps(self, tensors: Tensors, count: int) -> Uses:
        """Zeros (B, ...) for each use of a layer, in the shape of its output."""
        zero = next(iter(tensors.values())).new_zeros(())
        return {
            name: [zero.expand(count, *shape) for shape in shapes]
            for name, shapes in self.measured.shapes.items()
        }

    def _forward(
        self, tensors: Tensors, inputs: Inputs, labels: Tensor, taps: Uses | None
    ) -> tuple[Tensor, tuple[Tensor, Uses, Uses]]:
        """Sum of the losses; losses (B,), and inputs and outputs of every layer's uses."""
        uses: Uses = {name: [] for name in (*self.layers, *self.matrices)}
        outputs: Uses = {name: [] for name in uses}

        def single(example: Inputs, taps: Uses | None) -> tuple[Tensor, ...]:
            def record(name: str, inputs: Tensor, output: Tensor) -> Tensor | None:
                tapped = None if taps is None else output + taps[name][len(uses[name])]
                uses[name].append(inputs)
                outputs[name].append(output)
                return tapped

            with self._watched(record):
                logits = call(self.net, tensors, example, self.resets)
            # without names, because `vmap` would search through them
            return logits, *all_uses(uses), *all_uses(outputs)

        if self.by_example:
            logits, *values = single(inputs, taps)
        else:
            examples = of_each(inputs, lambda value: value.unflatten(0, (-1, self.copies)))
            in_dims = (0, None if taps is None else 0)
            with sdpa_kernel(SDPBackend.MATH):  # `vmap` would run any other kernel on an example at a time
                logits, *values = vmap(single, in_dims, randomness="different")(examples, taps)
            logits = logits.flatten(0, 1)
        of_all = iter(values)
        uses, outputs = (
            {name: [next(of_all) for _ in layer_uses] for name, layer_uses in recorded.items()}
            for recorded in (uses, outputs)
        )
        if self.copies == 1:
            losses = loss_of(logits, labels, "none", self.loss)
        else:
            losses = loss_of(logits, labels.repeat_interleave(self.copies, 0), "none", self.loss)
            losses = losses.unflatten(0, (-1, self.copies)).mean(1)
        return losses.sum(), (losses, uses, outputs)


def all_uses(uses: Uses) -> list[Tensor]:
    """Tensors of all layers' uses, in order."""
    return [use for layer_uses in uses.values() for use in layer_uses]
