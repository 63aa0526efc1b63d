"""Clipped per-example gradients of any network."""

import torch
from torch import Tensor, nn

from pipeline.errors import UserError
from pipeline.privacy.gradients import Bounds, ClippedSum, fastest


def clipped_sum(
    network: nn.Module, inputs: Tensor, labels: Tensor, clip: float, *, reference: bool = False
) -> ClippedSum:
    """The sum over examples of the gradients of their cross-entropy, each clipped to an L2 norm of ``clip``.

    Where the examples are a Poisson sample, adding noise of standard deviation z ``clip`` to it is one step
    of DP-SGD with noise multiplier z (Abadi et al. 2016). A layer that lets examples see each other, such as
    `nn.BatchNorm2d` in training, has no per-example gradient, and is refused.

    Args:
        network: logits (B, K) of inputs; gradients are taken of its parameters with ``requires_grad``.
        inputs: (B, ...) as the network takes them.
        labels: (B,) int64.
        clip: the bound.
        reference: one gradient an example by `torch.func.vmap(grad)`, slower; the fast way agrees with it to
            rounding.

    Returns:
        `sums` by parameter's name, in the parameters' shapes; `norms` (B, 1) before clipping; `losses` (B,).

    Raises:
        UserError: ``clip`` is not above 0, labels don't fit, or a layer mixes examples.
    """
    if not clip > 0:
        raise UserError(f"clip: {clip:g}; allowed: above 0")
    if labels.shape != (len(inputs),) or len(labels) == 0:
        raise UserError(f"labels: of shape {tuple(labels.shape)}; needed: ({len(inputs)},)")
    for name, layer in network.named_modules():
        if _mixes(layer):
            raise UserError(f"layer {name!r}: batch norm mixes examples; allowed: group norm, or eval()")
    tensors = {name: value.detach() for name, value in network.named_parameters() if value.requires_grad}
    one = next(iter(tensors.values())).new_ones(())
    clipper = fastest(network, inputs[:1], reference=reference, alone=inputs.device.type == "cpu")
    bounds = Bounds.whole(clip * one, len(tensors))
    with torch.no_grad():
        return clipper(tensors, inputs, labels, one.expand(len(labels)), bounds)


def _mixes(layer: nn.Module) -> bool:
    batch_norm = isinstance(layer, nn.modules.batchnorm._BatchNorm)
    return batch_norm and (layer.training or not layer.track_running_stats)
