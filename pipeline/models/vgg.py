"""The light VGG of Davody et al. Table 1: 2x64, pool, 2x128, pool, 4x256, pool, avg-pool; linear 512, 10."""

from torch import nn

from pipeline.models.model import Model
from pipeline.models.normalization import normalization

STAGES = ((64, 64), (128, 128), (256, 256, 256, 256))  # channels of 3x3 convolutions; a pool after each stage


def build(model: Model, shape: tuple[int, ...], classes: int) -> nn.Module:
    """VGG with eight convolutions; 2,462,282 parameters on CIFAR-10 without normalisation.

    The table doesn't say what its average pooling leaves: here one value a channel, as in its ResNet-18.
    """
    channels, behind = shape[0], 10
    convolutions: list[nn.Module] = []
    for stage in STAGES:
        for width in stage:
            behind -= 1
            convolutions += [
                nn.Conv2d(channels, width, 3, padding=1), normalization(model, width, behind), nn.ReLU()
            ]  # fmt: skip
            channels = width
        convolutions.append(nn.MaxPool2d(2))
    return nn.Sequential(
        *(*convolutions, nn.AdaptiveAvgPool2d(1), nn.Flatten()),
        *(nn.Linear(channels, 512), normalization(model, 512, 1), nn.ReLU()),
        *(nn.Linear(512, classes), normalization(model, classes, 0)),
    )
