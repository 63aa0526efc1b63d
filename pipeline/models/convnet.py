"""Convnet of Nguyen et al. 2023, Table 1: four convolutions and one linear layer."""

from torch import nn

from dprepro.pipeline.models.model import Model
from dprepro.pipeline.models.normalization import normalization, normalized

VERSION = 1  # raise it if the same settings would give other numbers
ORDERED = "norm_activation"  # its second `order`
SMALLEST = 8  # pixels per side; three poolings leave one


def build(model: Model, shape: tuple[int, ...], classes: int) -> nn.Module:
    """Convnet for images of ``shape`` (C, H, W); 132,042 parameters on CIFAR-10 with batch norm.

    Convolutions are 3x3 with padding 1 and biases. The order is that of Table 1's lines: convolution,
    ReLU, normalisation, average pooling; or, by ``order: norm_activation``, that of section A.1, with
    normalisation before ReLU. With batch norm as in Table 1 (``unnormalized: 1``) it has 18 tensors. The
    table's softmax is part of the loss.

    Raises:
        ValueError: inputs are no images, or too small for three poolings.
    """
    if len(shape) != 3 or min(shape[1:]) < SMALLEST:
        raise ValueError(f"images of at least {SMALLEST}x{SMALLEST} are needed")
    return nn.Sequential(
        *(nn.Conv2d(shape[0], 32, 3, padding=1), *normalized(model, nn.ReLU(), 32, 4), nn.AvgPool2d(2)),
        *(nn.Conv2d(32, 64, 3, padding=1), *normalized(model, nn.ReLU(), 64, 3), nn.AvgPool2d(2)),
        *(nn.Conv2d(64, 64, 3, padding=1), *normalized(model, nn.ReLU(), 64, 2), nn.AvgPool2d(2)),
        *(nn.Conv2d(64, 128, 3, padding=1), *normalized(model, nn.ReLU(), 128, 1)),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten()),
        *(nn.Linear(128, classes), normalization(model, classes, 0)),
    )
