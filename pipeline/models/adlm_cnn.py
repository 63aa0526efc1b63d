"""Networks of Phan et al. 2017 (section IV): one for MNIST (1 channel), one for CIFAR-10 (3 channels)."""

from torch import nn

from dprepro.pipeline.models.model import Model
from dprepro.pipeline.models.normalization import normalization

VERSION = 1  # raise it if the same settings would give other numbers
GREY = ((32, 5), (64, 5)), 25  # feature maps and side of each convolution; units of the linear layer
COLOUR = ((128, 3), (128, 5), (256, 5)), 30


def build(model: Model, shape: tuple[int, ...], classes: int) -> nn.Module:
    """Convolutions with ReLU and 2x2 max pooling, a linear layer, and an output without bias (Eq. 23).

    130,771 parameters for MNIST, 1,355,978 for CIFAR-10. Normalisation 'response' follows each convolution's
    ReLU, as in the paper. Any other normalisation is at the last hidden layer only, as in the authors' code.
    The method bounds the outputs of this layer itself, because its bound uses all examples of a batch.
    """
    convolutions, units = GREY if shape[0] == 1 else COLOUR
    channels, height, width = shape
    layers: list[nn.Module] = []
    for number, (maps, side) in enumerate(convolutions):
        layers += [nn.Conv2d(channels, maps, side, padding=side // 2), nn.ReLU()]
        if model.normalization == "response":
            layers.append(normalization(model, maps, len(convolutions) + 1 - number))
        layers.append(nn.MaxPool2d(2))
        channels, height, width = maps, height // 2, width // 2
    layers += [nn.Flatten(), nn.Linear(channels * height * width, units)]
    if model.normalization != "response":
        layers.append(normalization(model, units, 1))
    return nn.Sequential(*layers, nn.ReLU(), nn.Linear(units, classes, bias=False))
