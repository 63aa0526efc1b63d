"""Normalisation layers of the papers' networks."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dprepro.clipping.normalization import BatchStatistics
from dprepro.pipeline.models.model import Model


class LocalResponse(nn.Module):
    """Local response normalisation of Phan et al. 2017, Eq. 22: h / max(h, (q + alpha sum h^2)^beta).

    h is an input; the sum is over the ``SIZE`` channels around it. The maximum, which torch's layer lacks,
    keeps nonnegative inputs in [0, 1]. Examples are normalised separately. Shapes: (B, C) or (B, C, H, W).
    """

    Q, ALPHA, BETA, SIZE = 2.0, 1e-4, 0.75, 5
    near: Tensor

    def __init__(self, channels: int):
        """Set the paper's constants; nothing is trained."""
        super().__init__()
        channel = torch.arange(channels)
        near = (channel[:, None] - channel).abs() <= self.SIZE // 2
        self.register_buffer("near", self.ALPHA * near.float()[..., None, None], persistent=False)

    def forward(self, inputs: Tensor) -> Tensor:
        """Normalise; the shape stays the same."""
        maps = inputs if inputs.dim() == 4 else inputs[..., None, None]
        # a sum over channels, fastest as a 1x1 convolution
        factor = (self.Q + F.conv2d(maps.square(), self.near)).pow(-self.BETA)
        return (maps * factor).clamp(max=1).reshape(inputs.shape)


def normalized(model: Model, activation: nn.Module, channels: int, from_end: int) -> tuple[nn.Module, ...]:
    """``activation`` and then `normalization`, or the reverse by ``order: norm_activation``."""
    layers = (activation, normalization(model, channels, from_end))
    return layers[::-1] if model.order == "norm_activation" else layers


def normalization(model: Model, channels: int, from_end: int) -> nn.Module:
    """Normalisation layer of ``model`` after a trainable layer of ``channels`` outputs.

    ``from_end`` is the number of trainable layers after that one: 0 for the output layer.

    'layer' uses each example's statistics over all hidden units of a layer (Davody et al. Eq. 3). In a
    convolution, gain and bias are per channel, as in group norm with one group; the paper doesn't specify
    them. All kinds of batch norm are the same layer; they differ in the source of its statistics.
    """
    if model.normalization == "none" or from_end < model.unnormalized:
        return nn.Identity()
    if model.normalization == "layer":
        return nn.GroupNorm(1, channels, eps=model.epsilon)
    if model.normalization == "group":
        return nn.GroupNorm(model.groups, channels, eps=model.epsilon)
    if model.normalization == "response":
        return LocalResponse(channels)
    return BatchStatistics(channels, model.epsilon)
