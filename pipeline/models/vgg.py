"""Light VGG of Davody et al. Table 1: 2x64, pool, 2x128, pool, 4x256, pool, average pool; linear 512, 10."""

from collections.abc import Sequence

from torch import nn

from dprepro.pipeline.models.model import Model
from dprepro.pipeline.models.normalization import normalization

VERSION = 1  # raise it if the same settings would give other numbers
STAGES = ((64, 64), (128, 128), (256, 256, 256, 256))  # channels of 3x3 convolutions; a pool after each stage


def build(model: Model, shape: tuple[int, ...], classes: int) -> nn.Module:
    """VGG with eight convolutions; 2,462,282 parameters on CIFAR-10 without normalisation.

    The table doesn't give the output size of its average pooling. Here it is one value per channel, as in the
    table's ResNet-18.
    """
    return nn.Sequential(
        *(*vgg_stages(model, shape[0], STAGES, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten()),
        *(nn.Linear(STAGES[-1][-1], 512), normalization(model, 512, 1), nn.ReLU()),
        *(nn.Linear(512, classes), normalization(model, classes, 0)),
    )


def vgg_stages(
    model: Model, channels: int, stages: Sequence[Sequence[int]], from_end: int
) -> list[nn.Module]:
    """Layers of a VGG of any depth for images of ``channels``.

    ``stages`` are the widths of each stage's convolutions; ``from_end`` is the number of trainable layers
    after the last convolution.
    """
    layers: list[nn.Module] = []
    from_end += sum(map(len, stages))
    for stage in stages:
        for width in stage:
            from_end -= 1
            layers += [
                nn.Conv2d(channels, width, 3, padding=1), normalization(model, width, from_end), nn.ReLU()
            ]  # fmt: skip
            channels = width
        layers.append(nn.MaxPool2d(2))
    return layers
