"""The light VGG of Davody et al. Table 1: 2x64, pool, 2x128, pool, 4x256, pool, avg-pool; linear 512, 10."""

from torch import nn

from pipeline.models.model import Model
from pipeline.models.normalization import normalization
from pipeline.models.vgg_stages import vgg_stages

VERSION = 1  # raised where the same settings would give other numbers
STAGES = ((64, 64), (128, 128), (256, 256, 256, 256))  # channels of 3x3 convolutions; a pool after each stage


def build(model: Model, shape: tuple[int, ...], classes: int) -> nn.Module:
    """VGG with eight convolutions; 2,462,282 parameters on CIFAR-10 without normalisation.

    The table doesn't say what its average pooling leaves: here one value a channel, as in its ResNet-18.
    """
    return nn.Sequential(
        *(*vgg_stages(model, shape[0], STAGES, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten()),
        *(nn.Linear(STAGES[-1][-1], 512), normalization(model, 512, 1), nn.ReLU()),
        *(nn.Linear(512, classes), normalization(model, classes, 0)),
    )
