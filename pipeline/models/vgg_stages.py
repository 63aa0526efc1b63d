"""What VGGs of every depth share: stages of 3x3 convolutions, each with a pool behind it."""

from collections.abc import Sequence

from torch import nn

from pipeline.models.model import Model
from pipeline.models.normalization import normalization


def vgg_stages(model: Model, channels: int, stages: Sequence[Sequence[int]], behind: int) -> list[nn.Module]:
    """Layers for images of ``channels``; ``stages`` are the widths of each stage's convolutions.

    ``behind`` is how many trainable layers come behind the last of them.
    """
    layers: list[nn.Module] = []
    behind += sum(map(len, stages))
    for stage in stages:
        for width in stage:
            behind -= 1
            layers += [
                nn.Conv2d(channels, width, 3, padding=1), normalization(model, width, behind), nn.ReLU()
            ]  # fmt: skip
            channels = width
        layers.append(nn.MaxPool2d(2))
    return layers
