"""Sums of clipped gradients that go through a joint batch: the obvious way, and a fast way that must agree.

Where batch norm takes its statistics from the batch, every example of the batch has a part in each example's
gradient. So a batch takes as many backward passes as it has examples, all through the same layers' inputs.
"""

import copy
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.func import vjp, vmap
from torch.nn import functional as F

from pipeline.methods.dpsgd.front_tangents import FrontTangents, front
from pipeline.models.functional import functional_call
from pipeline.models.normalization import BatchStatistics, measuring
from pipeline.privacy.clippers import close, random_inputs
from pipeline.privacy.gradients import Bounds, ClippedSum, clipped
from pipeline.privacy.layer_gradients import Tensors
from pipeline.privacy.layers import trained_layers, watched

# Backward passes of the fast way side by side, at least: their products fill a processor so
PASSES = 16


# A way to compute `ClippedSum` of losses that each depend on a whole batch. It takes a function that makes
# the (B,) losses of one replica's tensors, these tensors, a mask (B,) with 1 for examples that are there
# and 0 for padding, the bounds, and how many whole backward passes fit into memory side by side.
JointClipper = Callable[[Callable[[Tensors], Tensor], Tensors, Tensor, Bounds, int], ClippedSum]


def joint_clipper(net: nn.Module, example: Tensor, reference: bool, alone: bool) -> JointClipper:
    """The fast way on a CPU where it can take every layer, else the reference, or that on request.

    It takes linear layers and batch norm, and before them the convolutions that `front` knows. ``example`` is
    one of the network's inputs (1, ...); ``alone``: whether the way is called as it is on a CPU, and not
    within `vmap`.
    """
    if reference or not alone:
        return through_everything
    try:
        trial = copy.deepcopy(net).double()
        fast = _on_random_inputs(JointBookKeeping(trial, example.double()), trial, example)
        right = _on_random_inputs(through_everything, trial, example)
        return JointBookKeeping(net, example) if close(fast, right, 1e-5) else through_everything
    except (NotImplementedError, RuntimeError):  # it has no rule for a layer, or torch none for an operation
        return through_everything


def _on_random_inputs(clipper: JointClipper, net: nn.Module, example: Tensor) -> ClippedSum:
    """The sums of three random examples in one joint batch, by the network's own weights."""
    inputs = random_inputs(net, example, 3)
    tensors = {name: value.detach() for name, value in net.named_parameters() if value.requires_grad}
    like = inputs.new_ones(len(tensors))

    def losses(tensors: Tensors) -> Tensor:
        with measuring(net, inputs.new_ones(3)):
            logits = functional_call(net, tensors, (inputs.clone(),))
        return F.cross_entropy(logits, logits.new_zeros(3, dtype=torch.long), reduction="none")

    return clipper(losses, tensors, inputs.new_ones(3), Bounds(like.diag(), torch.inf * like, like), 1)


def through_everything(
    losses: Callable[[Tensors], Tensor], tensors: Tensors, mask: Tensor, bounds: Bounds, at_once: int
) -> ClippedSum:
    """The reference: each example's gradient by a whole backward pass, then clip, then sum."""
    values, pullback = vjp(losses, tensors)[:2]
    parts: list[ClippedSum] = []
    picks = torch.eye(len(mask), device=mask.device)
    # pieces in a plain loop: every example's gradient at once would not fit
    pieces = zip(picks.split(at_once), mask.split(at_once), values.split(at_once), strict=True)
    for pick, present, of_piece in pieces:
        gradients = vmap(lambda which: pullback(which)[0])(pick)
        parts.append(clipped(gradients, of_piece, present, bounds))
    return ClippedSum.of(parts)._replace(losses=values)


class JointBookKeeping:
    """The fast way: backward passes end at the layers' outputs, and products give the layers' gradients.

    All passes share the layers' inputs. Where a linear layer has more inputs than the batch has examples, its
    gradients lie in the few directions that the inputs span. They are written out, clipped and summed in an
    orthonormal basis of these, which changes no norm. Convolutions in front are no part of the passes, see
    `FrontTangents`.
    """

    def __init__(self, net: nn.Module, example: Tensor):
        """``example`` is one of the network's inputs (1, ...).

        Raises:
            NotImplementedError: a trained layer has no rule here, isn't used exactly once in a pass, or
                shares a parameter with another; `through_everything` takes every network.
        """
        layers, uses = trained_layers(net), Counter[str]()
        with torch.no_grad(), watched(layers, lambda name, inputs, output: uses.update([name])):
            net(example)
        self.blocks = front(net)
        ahead = {name for block in self.blocks for name in (block.conv_name, block.norm_name)}
        if not ahead <= set(layers):  # a part of the front is frozen
            self.blocks, ahead = [], set()
        self.layers = {name: layer for name, layer in layers.items() if name not in ahead}
        for name, layer in layers.items():
            if uses[name] != 1 or (name in self.layers and type(layer) not in _RULES):
                raise NotImplementedError(f"no fast way through a joint batch for layer {name!r} ({layer})")

    def __call__(
        self,
        losses: Callable[[Tensors], Tensor],
        tensors: Tensors,
        mask: Tensor,
        bounds: Bounds,
        at_once: int,
    ) -> ClippedSum:
        """The sums of one batch; see `JointClipper`."""
        values, outputs, shared = self._pass(losses, tensors)
        # passes for those that are there; of none at all one stays, and adds nothing
        here = mask > 0
        here[:1] = True
        of_all = (torch.eye(len(mask)), mask, values.detach())
        ends, size = list(outputs.values()), max(at_once, PASSES)
        parts: list[ClippedSum] = []
        for pick, present, of_piece in zip(*(every[here].split(size) for every in of_all), strict=True):
            backs = torch.autograd.grad(values, ends, pick, retain_graph=True, is_grads_batched=True)
            gradients = {
                f"{prefix}{key}": value
                for prefix, back in zip(outputs, backs, strict=True)
                for key, value in shared[prefix].gradients(back).items()
            }
            parts.append(clipped({name: gradients[name] for name in tensors}, of_piece, present, bounds))
        sums, some, _ = ClippedSum.of(parts)
        for prefix, layer in shared.items():
            if layer.basis is not None:
                sums[f"{prefix}weight"] = sums[f"{prefix}weight"] @ layer.basis.T
        norms = mask.new_zeros(len(mask), len(bounds.limits))
        norms[here] = some
        return ClippedSum(sums, norms, values.detach())

    def _pass(
        self, losses: Callable[[Tensors], Tensor], tensors: Tensors
    ) -> tuple[Tensor, Tensors, dict[str, "Shared"]]:
        """The losses, and where their backward passes end with what these share there.

        Both by what the names of a layer's tensors begin with: nothing for the whole front.
        """
        outputs: Tensors = {}
        shared: dict[str, Shared] = {}
        images: list[Tensor] = []

        def note(prefix: str, inputs: Tensor, output: Tensor) -> None:
            if not output.requires_grad:
                output.requires_grad_()  # the graph begins here
            outputs[prefix] = output
            if prefix:
                layer = self.layers[prefix[:-1]]
                shared[prefix] = _RULES[type(layer)](layer, inputs.detach())
            else:
                shared[prefix] = Shared(FrontTangents(self.blocks, *images).gradients)

        ends: dict[str, nn.Module] = {f"{name}.": layer for name, layer in self.layers.items()}
        begins: dict[str, nn.Module] = {}
        if self.blocks:
            begins[""], ends[""] = self.blocks[0].conv, self.blocks[-1].pool
        keep = watched(begins, lambda prefix, inputs, output: images.append(inputs))
        with torch.enable_grad(), keep, watched(ends, note):
            return losses(tensors), outputs, shared


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
        named = {"weight": flat.transpose(1, 2) @ seen}
        return named if layer.bias is None else {**named, "bias": flat.sum(1)}

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
