"""ResNet-18 for small images: a 3x3 stem and four stages of 64 to 512 channels, two blocks each.

Architecture of kuangliu/pytorch-cifar, which both papers with this network used (Davody et al. Table 1,
Nguyen et al. 2023).
"""

from torch import Tensor, nn
from torch.nn import functional as F

from dprepro.pipeline.models.model import Model
from dprepro.pipeline.models.normalization import normalization

VERSION = 1  # raise it if the same settings would give other numbers
STAGES = ((64, 1), (128, 2), (256, 2), (512, 2))  # channels, and the stride of the first block


def build(model: Model, shape: tuple[int, ...], classes: int) -> nn.Module:
    """ResNet-18 for images of ``shape`` (C, H, W).

    With batch norm after all but the output layer (``unnormalized: 1``), as usual, it has 11,173,962
    parameters in 62 tensors on CIFAR-10.
    """
    blocks: list[nn.Module] = []
    inputs, from_end = STAGES[0][0], 16
    for channels, first in STAGES:
        for stride in (first, 1):
            blocks.append(BasicBlock(model, inputs, channels, stride, from_end))
            inputs, from_end = channels, from_end - 2
    return nn.Sequential(
        *(_convolution(model, shape[0], STAGES[0][0], 3, 1, 17), nn.ReLU(), *blocks),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten()),
        *(nn.Linear(inputs, classes), normalization(model, classes, 0)),
    )


class BasicBlock(nn.Module):
    """Residual block of two 3x3 convolutions; the shortcut is a 1x1 convolution if shapes differ."""

    def __init__(self, model: Model, inputs: int, outputs: int, stride: int, from_end: int):
        """``from_end``: number of trainable layers after the first convolution; shortcuts don't count."""
        super().__init__()
        self.first = _convolution(model, inputs, outputs, 3, stride, from_end)
        self.second = _convolution(model, outputs, outputs, 3, 1, from_end - 1)
        same_shape = inputs == outputs and stride == 1
        # normalised like the second convolution, which has the same output
        self.shortcut = (
            nn.Identity() if same_shape else _convolution(model, inputs, outputs, 1, stride, from_end - 1)
        )

    def forward(self, inputs: Tensor) -> Tensor:
        """(B, C, H, W) to (B, C', H / stride, W / stride)."""
        return F.relu(self.second(F.relu(self.first(inputs))) + self.shortcut(inputs))


def _convolution(
    model: Model, inputs: int, outputs: int, kernel: int, stride: int, from_end: int
) -> nn.Sequential:
    """Convolution and normalisation; the convolution has a bias only if normalisation is left out."""
    norm = normalization(model, outputs, from_end)
    bare = isinstance(norm, nn.Identity)
    return nn.Sequential(nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=bare), norm)
