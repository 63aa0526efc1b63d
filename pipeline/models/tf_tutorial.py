"""Network of the TensorFlow tutorial, as in Abadi et al. (2016, section 5.3) on CIFAR-10."""

from collections import OrderedDict

from torch import Tensor, nn

from dprepro.pipeline.models.model import Model
from dprepro.pipeline.models.normalization import normalization

VERSION = 1  # raise it if the same settings would give other numbers
CROP = 24
FEATURES = 64 * (CROP // 4) ** 2  # number of features of an image after the convolutions


def build(model: Model, shape: tuple[int, ...], classes: int) -> nn.Module:
    """Two 5x5 convolutions of 64 channels, two linear layers of 384 units; 1,144,138 parameters on CIFAR-10.

    The number is without normalisation. ReLU and 2x2 max pooling follow each convolution. Davody et al. cite
    the network for their Table 6 without details. For inputs of shape (2304,), the features after the
    convolutions, the network is the linear layers alone, under the same names.

    Raises:
        ValueError: images are smaller than the crop, or ``shape`` is another number of features.
    """
    classifier = nn.Sequential(
        *(nn.Linear(FEATURES, 384), normalization(model, 384, 2), nn.ReLU()),
        *(nn.Linear(384, 384), normalization(model, 384, 1), nn.ReLU()),
        *(nn.Linear(384, classes), normalization(model, classes, 0)),
    )
    if len(shape) == 1:
        if shape != (FEATURES,):
            raise ValueError(f"{FEATURES} features are needed")
        return nn.Sequential(OrderedDict(classifier=classifier))
    channels, height, width = shape
    if min(height, width) < CROP:
        raise ValueError(f"images of at least {CROP}x{CROP} are needed")
    features = nn.Sequential(
        CentreCrop(),
        *(nn.Conv2d(channels, 64, 5, padding=2), normalization(model, 64, 4), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(64, 64, 5, padding=2), normalization(model, 64, 3), nn.ReLU(), nn.MaxPool2d(2)),
        nn.Flatten(),
    )
    return nn.Sequential(OrderedDict(features=features, classifier=classifier))


class CentreCrop(nn.Module):
    """Centre crop of 24x24 pixels, in training and at test time."""

    def forward(self, inputs: Tensor) -> Tensor:
        """(B, C, H, W) to (B, C, 24, 24)."""
        top, left = ((side - CROP) // 2 for side in inputs.shape[-2:])
        return inputs[..., top : top + CROP, left : left + CROP]
