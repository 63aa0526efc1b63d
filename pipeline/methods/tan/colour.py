"""Changes of images' colours, each image by an amount of its own; what torchvision does to one at a time.

Images are (N, C, H, W) floats in [0, 1] and stay so; amounts are (N,). What mixes colours leaves images of
one channel as they are.
"""

import torch
from torch import Tensor

SIXTHS = (5.0, 3.0, 1.0)  # of the colour circle: how far red, green and blue lie behind it


def brightened(images: Tensor, factors: Tensor) -> Tensor:
    """Values times ``factors``, at least 0."""
    return (images * _per_image(factors)).clamp(0, 1)


def contrasted(images: Tensor, factors: Tensor) -> Tensor:
    """Distances from the mean of the image's grey values, times ``factors``."""
    return _blend(images, _grey(images).mean((1, 2, 3), keepdim=True), factors)


def saturated(images: Tensor, factors: Tensor) -> Tensor:
    """Distances from the pixel's own grey value, times ``factors``."""
    return _blend(images, _grey(images), factors)


def greyscaled(images: Tensor) -> Tensor:
    """All channels the pixel's grey value."""
    return _grey(images).expand_as(images)


def hue_shifted(images: Tensor, shifts: Tensor) -> Tensor:
    """Hue of HSV moved round the colour circle by ``shifts``, in turns from red over green and blue."""
    if images.shape[1] == 1:
        return images
    red, green, blue = images.unbind(1)
    value = images.amax(1)
    chroma = value - images.amin(1)
    divisor = torch.where(chroma > 0, chroma, 1)  # a grey pixel has no hue; any does
    sixths = torch.where(
        value == red,
        (green - blue) / divisor,
        torch.where(value == green, 2 + (blue - red) / divisor, 4 + (red - green) / divisor),
    )
    hue = sixths[:, None] + 6 * _per_image(shifts)  # in sixths of a turn
    channel_hues = (hue + images.new_tensor(SIXTHS)[:, None, None]).remainder(6)
    # how much of its chroma a channel lacks: all of it for two sixths, none for two, a part in between
    missing_chroma = torch.minimum(channel_hues, 4 - channel_hues).clamp(0, 1)
    return value[:, None] - chroma[:, None] * missing_chroma


def _grey(images: Tensor) -> Tensor:
    """(N, 1, H, W), by the shares of ITU-R BT.601."""
    if images.shape[1] == 1:
        return images
    red, green, blue = images.split(1, dim=1)
    return 0.2989 * red + 0.587 * green + 0.114 * blue


def _blend(images: Tensor, references: Tensor, factors: Tensor) -> Tensor:
    return torch.lerp(references, images, _per_image(factors)).clamp(0, 1)


def _per_image(amounts: Tensor) -> Tensor:
    return amounts[:, None, None, None]
