"""Low-rank adapters for a network with public weights (LoRA, Hu et al. 2022, arXiv:2106.09685).

Without adapters the network is trained as a whole. Batch norm is frozen either way.
"""

import math
from typing import Any

from torch import Tensor, nn

from dprepro.errors import UserError


class Adapted(nn.Module):
    """Frozen linear or convolutional layer plus trained layers of low rank in parallel.

    The adapters are separate layers, so the fast per-example gradients cover them.
    """

    def __init__(self, layer: nn.Linear | nn.Conv2d, rank: int):
        """``rank``: number of channels between the two trained layers; the second layer starts with zeros."""
        super().__init__()
        self.layer = layer
        self.down: nn.Module
        self.up: nn.Module
        if isinstance(layer, nn.Linear):
            self.down = nn.Linear(layer.in_features, rank, bias=False)
            self.up = nn.Linear(rank, layer.out_features, bias=False)
        else:
            names = ("kernel_size", "stride", "padding", "dilation")
            window: dict[str, Any] = {name: getattr(layer, name) for name in names}
            self.down = nn.Conv2d(layer.in_channels, rank, bias=False, **window)
            self.up = nn.Conv2d(rank, layer.out_channels, 1, bias=False)
        nn.init.kaiming_uniform_(self.down.weight, a=math.sqrt(5))
        nn.init.zeros_(self.up.weight)

    def forward(self, inputs: Tensor) -> Tensor:
        """Output of the frozen layer plus that of the adapters."""
        output: Tensor = self.layer(inputs) + self.up(self.down(inputs))
        return output


class FrozenBatchNorm(nn.Module):
    """Batch norm with its stored statistics: a fixed scale and shift of each channel."""

    def __init__(self, norm: nn.BatchNorm2d):
        """Take weights and statistics of ``norm``."""
        super().__init__()
        assert norm.running_mean is not None, "statistics are there"
        assert norm.running_var is not None, "statistics are there"
        scale = norm.weight.detach() / (norm.running_var + norm.eps).sqrt()
        self.register_buffer("scale", scale[:, None, None])
        self.register_buffer("shift", (norm.bias.detach() - norm.running_mean * scale)[:, None, None])

    def forward(self, inputs: Tensor) -> Tensor:
        """(B, C, H, W) inputs, scaled and shifted."""
        output: Tensor = inputs * self.get_buffer("scale") + self.get_buffer("shift")
        return output


def last_linear(net: nn.Module) -> tuple[str, nn.Linear]:
    """Name and layer of a network's last linear layer, which gives a classifier's outputs.

    Raises:
        UserError: the network has no linear layer.
    """
    found = [(name, layer) for name, layer in net.named_modules() if isinstance(layer, nn.Linear)]
    if not found:
        raise UserError(
            f"network {type(net).__name__}: has no linear layer; allowed: networks that end with one"
        )
    return found[-1]


def add_adapters(net: nn.Module, rank: int | None, classes: int) -> nn.Module:
    """Replace a network's last linear layer; freeze the other layers and add adapters, or train them all.

    Args:
        net: a classifier with trained weights; it is changed.
        rank: rank of the adapters of linear layers and ungrouped convolutions; other layers have none. None:
            no adapters, and all layers but batch norm are trained.
        classes: number of outputs of the new last layer.

    Returns:
        The network. Its outputs don't depend on other examples of a batch, because batch norm uses stored
        statistics.
    """
    net.requires_grad_(rank is None)
    last, outputs = last_linear(net)
    for name, layer in [*net.named_modules()]:
        replaced: nn.Module | None = None
        if name == last:
            replaced = nn.Linear(outputs.in_features, classes)
        elif isinstance(layer, nn.BatchNorm2d):
            replaced = FrozenBatchNorm(layer)
        elif rank is not None and (
            type(layer) is nn.Linear or (type(layer) is nn.Conv2d and layer.groups == 1)
        ):
            replaced = Adapted(layer, rank)
        if replaced is not None:
            net.set_submodule(name, replaced)
    return net
