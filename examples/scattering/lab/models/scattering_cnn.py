"""The small CNN on MNIST's scattering features (Tramèr and Boneh 2021), with tanh, as their code has it."""

from torch import nn

from lab.input_norm import input_norm
from pipeline.models.model import Model


def build(model: Model, shape: tuple[int, ...], classes: int) -> nn.Module:
    """For features of ``shape`` (81, 7, 7)."""
    channels, *sides = shape
    if sides != [7, 7]:
        raise ValueError("it is for features of 7 x 7")
    return nn.Sequential(
        input_norm(model, channels),
        *(nn.Conv2d(channels, 16, 3, stride=2, padding=1), nn.Tanh()),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.Tanh()),
        *(nn.Flatten(), nn.Linear(32 * 4 * 4, 32), nn.Tanh(), nn.Linear(32, classes)),
    )
