"""Multilayer perceptron: linear layers with ReLU, of the sizes in the row's `hidden`."""

from math import prod

from torch import nn

from dprepro.pipeline.models.model import Model
from dprepro.pipeline.models.normalization import normalization

VERSION = 1  # raise it if the same settings would give other numbers
HIDDEN_SIZES = (64, 32)  # default sizes of the hidden layers


def build(model: Model, shape: tuple[int, ...], classes: int) -> nn.Module:
    """Linear layers from inputs of ``shape`` through the hidden layers to ``classes`` outputs.

    Optional normalisation is between a linear layer and its ReLU.
    """
    hidden = model.hidden or HIDDEN_SIZES
    layers: list[nn.Module] = [nn.Flatten()]
    for place, (inputs, outputs) in enumerate(zip((prod(shape), *hidden), hidden, strict=False)):
        layers += [nn.Linear(inputs, outputs), normalization(model, outputs, len(hidden) - place), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(hidden[-1], classes), normalization(model, classes, 0))
