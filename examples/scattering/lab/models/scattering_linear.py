"""Linear layer on scattering features (Tramèr and Boneh 2021)."""

from torch import nn

from dprepro.pipeline.models.model import Model
from lab.input_norm import input_norm


def build(model: Model, shape: tuple[int, ...], classes: int) -> nn.Module:
    """Build the layer for features of ``shape`` (C, H, W)."""
    channels, height, width = shape
    return nn.Sequential(
        input_norm(model, channels), nn.Flatten(), nn.Linear(channels * height * width, classes)
    )
