"""LeNet-5 of Davody et al. Table 1: convolutions of 6 and 16 channels, with pooling; linear 120, 84, 10."""

from torch import nn

from dprepro.pipeline.models.model import Model
from dprepro.pipeline.models.normalization import normalization

VERSION = 1  # raise it if the same settings would give other numbers


def build(model: Model, shape: tuple[int, ...], classes: int) -> nn.Module:
    """LeNet-5 for images of ``shape`` (C, 28, 28); 61,706 parameters on MNIST without normalisation.

    Kernels are 5x5, the first with padding 2; pooling is max pooling. Normalisation follows every trainable
    layer (Davody et al., section 2), and ReLU follows normalisation.
    """
    channels, height, width = shape
    flat = 16 * ((height // 2 - 4) // 2) * ((width // 2 - 4) // 2)
    return nn.Sequential(
        *(nn.Conv2d(channels, 6, 5, padding=2), normalization(model, 6, 4), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(6, 16, 5), normalization(model, 16, 3), nn.ReLU(), nn.MaxPool2d(2)),
        nn.Flatten(),
        *(nn.Linear(flat, 120), normalization(model, 120, 2), nn.ReLU()),
        *(nn.Linear(120, 84), normalization(model, 84, 1), nn.ReLU()),
        *(nn.Linear(84, classes), normalization(model, classes, 0)),
    )
