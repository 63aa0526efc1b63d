"""LeNet-300-100 (LeCun et al. 1998), the fully connected network of Davody et al. Table 2."""

from torch import nn

from dprepro.pipeline.models import mlp
from dprepro.pipeline.models.model import Model

VERSION = 1  # raise it if the same settings would give other numbers


def build(model: Model, shape: tuple[int, ...], classes: int) -> nn.Module:
    """Hidden layers of 300 and 100 units; 266,610 parameters on MNIST without normalisation.

    ReLU follows each normalisation, as in LeNet-5; the paper gives only the network's name.
    """
    return mlp.build(model.model_copy(update={"hidden": (300, 100)}), shape, classes)
