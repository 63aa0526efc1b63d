"""Small CNNs with tanh on scattering features, as in the code of Tramèr and Boneh 2021."""

from torch import nn

from dprepro.pipeline.models.model import Model
from lab.input_norm import input_norm


def build(model: Model, shape: tuple[int, ...], classes: int) -> nn.Module:
    """Build the network for features of ``shape`` (C, 7, 7), as of MNIST, or (C, 8, 8), as of CIFAR-10."""
    channels, *sides = shape
    if sides not in ([7, 7], [8, 8]):
        raise ValueError("it is for features of 7 x 7 or 8 x 8")
    layers = _of_mnist(channels, classes) if sides == [7, 7] else _of_cifar10(channels, classes)
    return nn.Sequential(input_norm(model, channels), *layers)


def _of_mnist(channels: int, classes: int) -> list[nn.Module]:
    return [
        *(nn.Conv2d(channels, 16, 3, stride=2, padding=1), nn.Tanh()),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.Tanh()),
        *(nn.Flatten(), nn.Linear(32 * 4 * 4, 32), nn.Tanh(), nn.Linear(32, classes)),
    ]


def _of_cifar10(channels: int, classes: int) -> list[nn.Module]:
    return [
        *(nn.Conv2d(channels, 64, 3, padding=1), nn.Tanh(), nn.MaxPool2d(2)),
        *(nn.Conv2d(64, 64, 3, padding=1), nn.Tanh()),
        *(nn.Flatten(), nn.Linear(64 * 4 * 4, classes)),
    ]
