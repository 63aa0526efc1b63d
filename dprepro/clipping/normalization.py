"""Batch norm whose statistics are inputs, not side effects."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from dprepro.clipping.functional import functional_call


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


def moments(values: Tensor, example_weights: Tensor) -> tuple[Tensor, Tensor]:
    """Moments of ``values`` (B, C, ...), weighted by ``example_weights`` (B,).

    Padding of a batch has weight 0, and so no effect. If all weights are 0, mean and variance are 0.

    Returns:
        Mean and biased variance (C,).
    """
    flat = values.reshape(*values.shape[:2], -1)  # (B, C, P)
    share = (example_weights / (example_weights.sum().clamp_min(1) * flat.shape[2]))[:, None, None]
    mean = (flat * share).sum((0, 2))
    return mean, ((flat - mean[:, None]).square() * share).sum((0, 2))


def statistics_layers(net: nn.Module) -> dict[str, BatchStatistics]:
    """Find the trained `BatchStatistics` layers of a network.

    Layers with a frozen ``weight`` are left out: a frozen part of the network keeps the statistics of its
    pretraining as constants in its buffers.

    Returns:
        Layers by name.
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

    Without weights all examples count equally; this is faster, but the statistics have no gradient.

    Yields:
        A dictionary that is filled at the end of the block, under the names for `functional_call`:
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
    """Measure ``inputs`` (B, ...) at every trained `BatchStatistics`; ``tensors``: the network's parameters.

    Returns:
        Statistics, named as by `measuring`.
    """
    with measuring(net, inputs.new_ones(len(inputs))) as statistics:
        functional_call(net, tensors, (inputs,))
    return statistics
