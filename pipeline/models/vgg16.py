"""VGG-16 (Simonyan and Zisserman 2015, configuration D) for small images.

Davody et al. describe it in an unpublished appendix. Here it has thirteen convolutions and a single linear
layer, as in the code of the paper's first version (uds-lsv/SIDP).
"""

from torch import nn

from dprepro.pipeline.models.model import Model
from dprepro.pipeline.models.normalization import normalization
from dprepro.pipeline.models.vgg import vgg_stages

VERSION = 1  # raise it if the same settings would give other numbers
STAGES = ((64,) * 2, (128,) * 2, (256,) * 3, (512,) * 3, (512,) * 3)  # of 3x3 convolutions; a pool after each


def build(model: Model, shape: tuple[int, ...], classes: int) -> nn.Module:
    """VGG-16 for images of ``shape`` (C, 32, 32); 14,719,818 parameters on CIFAR-10 without normalisation."""
    return nn.Sequential(
        *(*vgg_stages(model, shape[0], STAGES, 1), nn.Flatten()),
        *(nn.Linear(STAGES[-1][-1], classes), normalization(model, classes, 0)),
    )
