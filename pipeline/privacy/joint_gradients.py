"""Sums of clipped gradients that go through a joint batch: the obvious way, and a fast way that must agree.

Where batch norm takes its statistics from the batch, every example of the batch has a part in each example's
gradient. So a batch takes as many backward passes as it has examples, all through the same layers' inputs.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.func import vjp, vmap

from pipeline.models.normalization import BatchStatistics
from pipeline.privacy.gradients import Bounds, ClippedSum, clipped
from pipeline.privacy.layer_gradients import Tensors


class JointClipper(Protocol):
    """A way to compute `ClippedSum` of losses that each depend on a whole batch.

    ``losses`` makes the (B,) losses of one replica's ``tensors``; mask (B,) with 1 for examples that are
    there and 0 for padding; ``at_once`` examples have their backward passes side by side.
    """

    def __call__(
        self,
        losses: Callable[[Tensors], Tensor],
        tensors: Tensors,
        mask: Tensor,
        bounds: Bounds,
        at_once: int,
    ) -> ClippedSum:
        """The sums of one batch."""


def joint_clipper(net: nn.Module, example: Tensor, reference: bool, alone: bool) -> JointClipper:
    """The fast way on a CPU where it can take every layer, else the reference, or that on request.

    Convolutions it can't: products are no faster for them than whole passes. ``example`` is one of the
    network's inputs (1, ...); ``alone``: whether the way is called as it is on a CPU, and not within `vmap`.
    """
    if reference or not alone:
        return through_everything
    layers, uses = _trained(net), Counter[str]()
    with torch.no_grad(), watched(layers, lambda name, inputs, output: uses.update([name])):
        net(example)
    if any(type(layer) not in _RULES or uses[name] != 1 for name, layer in layers.items()):
        return through_everything
    return JointBookKeeping(layers)


def through_everything(
    losses: Callable[[Tensors], Tensor], tensors: Tensors, mask: Tensor, bounds: Bounds, at_once: int
) -> ClippedSum:
    """The reference: each example's gradient by a whole backward pass, then clip, then sum."""
    found, pullback = vjp(losses, tensors)[:2]
    parts: list[ClippedSum] = []
    picks = torch.eye(len(mask), device=mask.device)
    # pieces in a plain loop: every example's gradient at once would not fit
    pieces = zip(picks.split(at_once), mask.split(at_once), found.split(at_once), strict=True)
    for pick, present, own in pieces:
        gradients = vmap(lambda which: pullback(which)[0])(pick)
        parts.append(clipped(gradients, own, present, bounds))
    sums = {name: torch.stack([part.sums[name] for part in parts]).sum(0) for name in tensors}
    return ClippedSum(sums, torch.cat([part.norms for part in parts]), found)


class JointBookKeeping:
    """The fast way: backward passes end at the layers' outputs, and products give the layers' gradients.

    All passes share the layers' inputs. Where a linear layer has more inputs than the batch has examples, its
    gradients lie in the few directions that the inputs span. They are written out, clipped and summed in an
    orthonormal basis of these, which changes no norm.
    """

    def __init__(self, layers: dict[str, nn.Module]):
        """``layers``: the trained ones, each with a rule and used once in a pass."""
        self.layers = layers

    def __call__(
        self,
        losses: Callable[[Tensors], Tensor],
        tensors: Tensors,
        mask: Tensor,
        bounds: Bounds,
        at_once: int,
    ) -> ClippedSum:
        """The sums of one batch; see `JointClipper`."""
        shared: dict[str, Shared] = {}
        outputs: Tensors = {}

        def note(name: str, inputs: Tensor, output: Tensor) -> None:
            if not output.requires_grad:
                output.requires_grad_()  # the graph begins here
            layer = self.layers[name]
            shared[name] = _RULES[type(layer)](layer, inputs.detach())
            outputs[name] = output

        with torch.enable_grad(), watched(self.layers, note):
            found = losses(tensors)
        # passes for those that are there; of none at all one stays, and adds nothing
        here = mask > 0
        here[:1] = True
        of_all = (torch.eye(len(mask)), mask, found.detach())
        parts: list[ClippedSum] = []
        ends = list(outputs.values())
        for pick, present, own in zip(*(every[here].split(at_once) for every in of_all), strict=True):
            backs = torch.autograd.grad(found, ends, pick, retain_graph=True, is_grads_batched=True)
            gradients = {
                f"{name}.{key}": value
                for name, back in zip(outputs, backs, strict=True)
                for key, value in shared[name].gradients(back).items()
            }
            parts.append(clipped({name: gradients[name] for name in tensors}, own, present, bounds))
        sums = {name: torch.stack([part.sums[name] for part in parts]).sum(0) for name in tensors}
        for name, layer in shared.items():
            if layer.basis is not None:
                sums[f"{name}.weight"] = sums[f"{name}.weight"] @ layer.basis.T
        norms = mask.new_zeros(len(mask), len(bounds.limits))
        norms[here] = torch.cat([part.norms for part in parts])
        return ClippedSum(sums, norms, found.detach())


@contextmanager
def watched(layers: Mapping[str, nn.Module], seen: Callable[[str, Tensor, Tensor], None]) -> Iterator[None]:
    """Call ``seen`` with name, input and output whenever one of ``layers`` is used."""

    def hook(name: str, layer: nn.Module, arguments: tuple[Tensor, ...], output: Tensor) -> None:
        seen(name, arguments[0], output)

    handles = [layer.register_forward_hook(partial(hook, name)) for name, layer in layers.items()]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _trained(net: nn.Module) -> dict[str, nn.Module]:
    """Layers with parameters of their own that are trained, by name."""
    return {
        name: layer
        for name, layer in net.named_modules()
        if any(parameter.requires_grad for parameter in layer.parameters(recurse=False))
    }


class Shared(NamedTuple):
    """What all backward passes share of a layer."""

    # the gradients of its tensors, (S, ...), from those at its output in S passes, (S, B, ...)
    gradients: Callable[[Tensor], Tensors]
    basis: Tensor | None = None  # (I, D) orthonormal directions in which the weight's gradients are written


def _linear(layer: nn.Linear, inputs: Tensor) -> Shared:
    basis, seen = None, inputs.flatten(0, -2)  # (B P, I), P places of each example
    if len(seen) < seen.shape[1]:
        basis, coordinates = torch.linalg.qr(seen.T)
        # what is not finite makes every gradient so, and then nothing is added: not 0 times infinity either
        basis, seen = torch.nan_to_num(basis, posinf=0.0, neginf=0.0), coordinates.T

    def gradients(out: Tensor) -> Tensors:
        flat = out.flatten(1, -2)  # (S, B P, O)
        found = {"weight": flat.transpose(1, 2) @ seen}
        return found if layer.bias is None else {**found, "bias": flat.sum(1)}

    return Shared(gradients, basis)


def _batch_statistics(layer: BatchStatistics, inputs: Tensor) -> Shared:
    assert layer.measured is not None, "statistics are the joint batch's"
    mean, var = (value.detach() for value in layer.measured)
    normalized = layer.normalized(inputs, mean, var).reshape(*inputs.shape[:2], -1)  # (B, C, P)

    def gradients(out: Tensor) -> Tensors:
        flat = out.reshape(*out.shape[:3], -1)  # (S, B, C, P)
        return {"weight": (flat * normalized).sum((1, 3)), "bias": flat.sum((1, 3))}

    return Shared(gradients)


_RULES: dict[type[nn.Module], Callable[..., Shared]] = {
    nn.Linear: _linear,
    BatchStatistics: _batch_statistics,
}
