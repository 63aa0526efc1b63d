"""Normalisation layers of the papers, and batch norm whose statistics are inputs, not side effects."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dprepro.pipeline.models.functional import functional_call
from dprepro.pipeline.models.model import Model


class BatchStatistics(nn.Module):
    """Batch norm without running averages: its statistics are given, or measured on its input.

    Given (the default): ``mean`` and ``var`` are buffers that `torch.func.functional_call` replaces, so
    gradients with respect to them are possible and examples don't depend on each other. Measured (inside
    `measuring`): the statistics are those of the batch, as in Davody et al. Eq. 2, with the biased variance.

    Shapes: input (B, C) or (B, C, H, W); ``weight``, ``bias``, ``mean``, ``var`` (C,).
    """

    mean: Tensor
    var: Tensor

    def __init__(self, channels: int, epsilon: float):
        """Set scale 1 and shift 0 (Davody et al., section 2); ``epsilon`` is added to variances."""
        super().__init__()
        self.epsilon = epsilon
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.register_buffer("mean", torch.zeros(channels))
        self.register_buffer("var", torch.ones(channels))
        self.measures = False  # whether statistics are measured on the input
        # (B,) weights of the examples for measured statistics; None: equal weights
        self.example_weights: Tensor | None = None
        self.measured: tuple[Tensor, Tensor] | None = None

    def forward(self, inputs: Tensor) -> Tensor:
        """Normalise, scale and shift; the shape stays the same."""
        if self.measures and self.example_weights is None:
            return self._normalize_by_batch(inputs)
        if self.measures:
            assert self.example_weights is not None
            self.measured = moments(inputs, self.example_weights)
        mean, var = self.measured or (self.mean, self.var)
        scale = self.weight * torch.rsqrt(var + self.epsilon)
        # one pass
        return torch.addcmul(
            self._broadcast(self.bias - mean * scale, inputs), inputs, self._broadcast(scale, inputs)
        )

    def normalized(self, inputs: Tensor, mean: Tensor, var: Tensor) -> Tensor:
        """``inputs`` normalised, before scale and shift."""
        return (inputs - self._broadcast(mean, inputs)) * self._broadcast(
            torch.rsqrt(var + self.epsilon), inputs
        )

    def _normalize_by_batch(self, inputs: Tensor) -> Tensor:
        """Normalise by the batch's statistics, by torch's kernel; `measured` gets them without gradients."""
        out, mean, deviation = torch.native_batch_norm(
            inputs, self.weight, self.bias, None, None, True, 0.0, self.epsilon
        )
        mean, deviation = mean.detach(), deviation.detach()  # 1 / sqrt(var + epsilon)
        self.measured = mean, (deviation**-2 - self.epsilon).clamp_min(0)
        return out

    @staticmethod
    def _broadcast(vector: Tensor, like: Tensor) -> Tensor:
        return vector.reshape(-1, *(1,) * (like.dim() - 2))


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


def moments(values: Tensor, example_weights: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and biased variance (C,) of ``values`` (B, C, ...), weighted by ``example_weights`` (B,).

    Padding of a batch has weight 0, and so no effect. If all weights are 0, mean and variance are 0.
    """
    flat = values.reshape(*values.shape[:2], -1)  # (B, C, P)
    share = (example_weights / (example_weights.sum().clamp_min(1) * flat.shape[2]))[:, None, None]
    mean = (flat * share).sum((0, 2))
    return mean, ((flat - mean[:, None]).square() * share).sum((0, 2))


def statistics_layers(net: nn.Module) -> dict[str, BatchStatistics]:
    """Trained `BatchStatistics` layers of a network, by name.

    Layers with a frozen ``weight`` are left out: a frozen part of the network keeps the statistics of its
    pretraining as constants in its buffers.
    """
    return {
        name: layer
        for name, layer in net.named_modules()
        if isinstance(layer, BatchStatistics) and layer.weight.requires_grad
    }


def initial_statistics(net: nn.Module) -> dict[str, Tensor]:
    """Statistics of every trained `BatchStatistics` before training, named as by `measuring`."""
    return {
        f"{name}.{part}": getattr(layer, part)
        for name, layer in statistics_layers(net).items()
        for part in ("mean", "var")
    }


@contextmanager
def measuring(net: nn.Module, example_weights: Tensor | None = None) -> Iterator[dict[str, Tensor]]:
    """Let every trained `BatchStatistics` measure its input; ``example_weights`` (B,) weigh the examples.

    Without weights all examples count equally; this is faster, but the statistics have no gradient. The
    yielded dictionary is filled at the end of the block, under the names for `functional_call`:
    ``'LAYER.mean'`` and ``'LAYER.var'``.
    """
    statistics: dict[str, Tensor] = {}
    layers = statistics_layers(net)
    for layer in layers.values():
        layer.measures, layer.example_weights = True, example_weights
    try:
        yield statistics
        for name, layer in layers.items():
            assert layer.measured is not None, f"{name} was not run"
            statistics[f"{name}.mean"], statistics[f"{name}.var"] = layer.measured
    finally:
        for layer in layers.values():
            layer.measures = False
            layer.example_weights = layer.measured = None


def measured(net: nn.Module, tensors: dict[str, Tensor], inputs: Tensor) -> dict[str, Tensor]:
    """Statistics of ``inputs`` (B, ...) at every trained `BatchStatistics`, named as by `measuring`.

    ``tensors`` are the network's parameters.
    """
    with measuring(net, inputs.new_ones(len(inputs))) as statistics:
        functional_call(net, tensors, (inputs,))
    return statistics


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
