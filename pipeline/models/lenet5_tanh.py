"""BN-LeNet-5 of Nguyen et al. 2023, Table 2: LeNet-5 of LeCun et al. 1998, with tanh and 32x32 inputs."""

from torch import nn

from dprepro.pipeline.models.model import Model
from dprepro.pipeline.models.normalization import normalization, normalized

VERSION = 1  # raise it if the same settings would give other numbers
ORDERED = "norm_activation"  # its second `order`
SMALLEST = 32  # pixels per side; the last convolution leaves one


def build(model: Model, shape: tuple[int, ...], classes: int) -> nn.Module:
    """LeNet-5 for images of ``shape`` (C, 32, 32); 61,990 parameters for C = 1, ten classes and batch norm.

    Convolutions are 5x5 without padding and have biases. The order is that of Table 2's lines: layer, tanh,
    normalisation, average pooling; or, by ``order: norm_activation``, that of section A.2, with normalisation
    before tanh. With batch norm as in Table 2 (``unnormalized: 2``) it has 16 tensors in 8 modules. The
    table's sizes after the second pooling, 10x10x16 and 5x5x120, fit no such network; here they are 5x5x16
    and 1x1x120, as in LeCun et al. The table's softmax is part of the loss.

    Raises:
        ValueError: inputs are no images, or too small for the last convolution.
    """
    if len(shape) != 3 or min(shape[1:]) < SMALLEST:
        raise ValueError(f"images of at least {SMALLEST}x{SMALLEST} are needed")
    channels, height, width = shape
    flat = 120 * _output_side(height) * _output_side(width)
    return nn.Sequential(
        *(nn.Conv2d(channels, 6, 5), *normalized(model, nn.Tanh(), 6, 4), nn.AvgPool2d(2)),
        *(nn.Conv2d(6, 16, 5), *normalized(model, nn.Tanh(), 16, 3), nn.AvgPool2d(2)),
        *(nn.Conv2d(16, 120, 5), *normalized(model, nn.Tanh(), 120, 2)),
        nn.Flatten(),
        *(nn.Linear(flat, 84), *normalized(model, nn.Tanh(), 84, 1)),
        *(nn.Linear(84, classes), normalization(model, classes, 0)),
    )


def _output_side(side: int) -> int:
    """Pixels per side after all convolutions and poolings."""
    return ((side - 4) // 2 - 4) // 2 - 4
