"""Clipped per-example gradients of any network."""

from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from pipeline.errors import UserError
from pipeline.privacy.clippers import Way, way_for
from pipeline.privacy.gradients import Bounds, ClippedSum

_WAYS: WeakKeyDictionary[nn.Module, tuple[Any, Way]] = WeakKeyDictionary()
_PLAIN = (bool, int, float, str)


def clipped_sum(
    network: nn.Module, inputs: Tensor, labels: Tensor, clip: float, *, reference: bool = False
) -> ClippedSum:
    """The sum over examples of the gradients of their cross-entropy, each clipped to an L2 norm of ``clip``.

    Where the examples are a Poisson sample, adding noise of standard deviation z ``clip`` to it is one step
    of DP-SGD with noise multiplier z (Abadi et al. 2016). Before the first sum, and whenever the network is
    another one or in another mode, it is tried on random inputs (`pipeline.privacy.clippers`): one in which
    examples see each other, such as by `nn.BatchNorm2d` in training, has no per-example gradient, and is
    refused; one for which the fast way isn't right goes by a slower one that is.

    Args:
        network: logits (B, K) of inputs; gradients are taken of its parameters with ``requires_grad``.
        inputs: (B, ...) as the network takes them.
        labels: (B,) int64.
        clip: the bound.
        reference: one gradient an example, by `torch.func.vmap(grad)` or, where that can't be, by a loop; the
            fast way agrees with it to rounding.

    Returns:
        `sums` by parameter's name, in the parameters' shapes; `norms` (B, 1) before clipping; `losses` (B,).

    Raises:
        UserError: ``clip`` is not above 0, labels don't fit, nothing is trained, the network mixes examples,
            or its parameters are in half precision, or it runs under `torch.autocast`: rounding would move
            the sum by more than ``clip``.
    """
    if not clip > 0:
        raise UserError(f"clip: {clip:g}; allowed: above 0")
    if labels.shape != (len(inputs),) or len(labels) == 0:
        raise UserError(f"labels: of shape {tuple(labels.shape)}; needed: ({len(inputs)},)")
    if torch.is_autocast_enabled(inputs.device.type):
        raise UserError(
            "torch.autocast: its rounding moves a sum by more than its bound; allowed: outside of it"
        )
    tensors = {name: value.detach() for name, value in network.named_parameters() if value.requires_grad}
    if not tensors:
        raise UserError("network: no parameter has requires_grad; needed: one")
    for name, value in tensors.items():
        if value.dtype not in (torch.float32, torch.float64):
            raise UserError(
                f"network: {name} is {value.dtype}, whose rounding moves a sum by more than its bound; "
                "allowed: float32, float64"
            )
    seen = (inputs.shape[1:], inputs.dtype, inputs.device, reference, tuple(tensors), _state(network))
    if _WAYS.get(network, (None,))[0] != seen:
        alone = inputs.device.type == "cpu"
        _WAYS[network] = seen, way_for(network, torch.zeros_like(inputs[:1]), 1, reference, alone)
    clipper = _WAYS[network][1](network)
    unit = next(iter(tensors.values())).new_ones(())
    bounds = Bounds.whole(clip * unit, len(tensors))
    with torch.no_grad():
        return clipper(tensors, inputs, labels, unit.expand(len(labels)), bounds)


def _state(network: nn.Module) -> list[Any]:
    """What a network's layers are, are told and are hooked to; of tensors nothing but which they are."""
    return [
        (
            id(layer),
            name,
            value if isinstance(value, _PLAIN) else (id(value), isinstance(value, dict) and len(value)),
        )
        for layer in network.modules()
        for name, value in vars(layer).items()
    ]
