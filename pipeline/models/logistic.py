"""Logistic regression: one linear layer on the features."""

from math import prod

from torch import nn

from dprepro.pipeline.models.model import Model
from dprepro.pipeline.models.normalization import normalization

VERSION = 1  # raise it if the same settings would give other numbers


def build(model: Model, shape: tuple[int, ...], classes: int) -> nn.Module:
    """Linear layer from inputs of ``shape`` to ``classes`` outputs."""
    return nn.Sequential(nn.Flatten(), nn.Linear(prod(shape), classes), normalization(model, classes, 0))
