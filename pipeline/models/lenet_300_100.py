"""LeNet-300-100 (LeCun et al. 1998), the fully connected network of Davody et al. Table 2."""

from math import prod

from torch import nn

from pipeline.models.model import Model
from pipeline.models.normalization import normalization

VERSION = 1  # raise it if the same settings would give other numbers


def build(model: Model, shape: tuple[int, ...], classes: int) -> nn.Module:
    """Hidden layers of 300 and 100 units; 266,610 parameters on MNIST without normalisation.

    ReLU follows each normalisation, as in LeNet-5; the paper gives only the network's name.
    """
    return nn.Sequential(
        nn.Flatten(),
        *(nn.Linear(prod(shape), 300), normalization(model, 300, 2), nn.ReLU()),
        *(nn.Linear(300, 100), normalization(model, 100, 1), nn.ReLU()),
        *(nn.Linear(100, classes), normalization(model, classes, 0)),
    )
