"""Augmentations of training images that Sander et al. (2022) compare (section 4.2), scaled to small images.

A recipe takes all its chance from numbers drawn beforehand, each image from its own: the same numbers give
the same copies, however many images are taken at once. Amounts are those of the authors' code
(facebookresearch/tan, src/data/dataset.py), which builds on torchvision's transforms.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from pipeline.methods.augment import crop_flip
from pipeline.methods.tan.colour import brightened, contrasted, greyscaled, hue_shifted, saturated

AREA = (0.08, 1.0)  # of a box, as a share of the image's
RATIO = 4 / 3  # largest of a box's sides, as its inverse is the least; evenly on a logarithmic scale
FACTORS = (0.2, 1.8)  # of brightness, contrast and saturation: 1 - .8 to 1 + .8
HUE = (-0.2, 0.2)  # in turns of the colour circle
BLUR = (1.0, 2.0)  # standard deviation in pixels


class Recipe(NamedTuple):
    """A way to make a copy of an image."""

    draws: int  # numbers in [0, 1) that an image takes
    # images (N, C, H, W), floats in [0, 1], and draws (N, draws) -> copies of the same shape, in [0, 1]
    apply: Callable[[Tensor, Tensor], Tensor]


def jitter(images: Tensor, draws: Tensor) -> Tensor:
    """Brightness, contrast, saturation and hue changed, one draw each.

    torchvision also draws the order of the four; here it is always this one.
    """
    brightness, contrast, saturation = _interpolate(*FACTORS, draws[:, :3]).unbind(1)
    images = contrasted(brightened(images, brightness), contrast)
    return hue_shifted(saturated(images, saturation), _interpolate(*HUE, draws[:, 3]))


def flip(images: Tensor, draws: Tensor) -> Tensor:
    """Mirrored where the one draw is from .5."""
    return torch.where(draws[:, :, None, None] < 0.5, images, images.flip(-1))


def blur(images: Tensor, draws: Tensor) -> Tensor:
    """Gaussian blur of 3 x 3 pixels, the border reflected; one draw tells its standard deviation."""
    neighbour_weight = (-0.5 / _interpolate(*BLUR, draws).square()).exp()[:, :, None, None]
    padded = F.pad(images, (1,) * 4, mode="reflect")
    rows = padded[:, :, 1:-1] + neighbour_weight * (padded[:, :, :-2] + padded[:, :, 2:])
    blurred = rows[..., 1:-1] + neighbour_weight * (rows[..., :-2] + rows[..., 2:])
    return (blurred / (1 + 2 * neighbour_weight).square()).clamp(0, 1)


def resized_crop(images: Tensor, draws: Tensor) -> Tensor:
    """A box of the image at the image's size; draws of its area, ratio of its sides, top and left.

    torchvision draws area and ratio up to ten times until a box fits. Here they are drawn once, and the one
    box in nine that is too wide or too high for a square image is cut to it.
    """
    height, width = images.shape[2:]
    area, ratio, top, left = draws.unbind(1)
    area = height * width * _interpolate(*AREA, area)
    ratio = RATIO ** _interpolate(-1, 1, ratio)
    rows = _positions(height, (area / ratio).sqrt(), top)
    columns = _positions(width, (area * ratio).sqrt(), left)
    return _columns(_columns(images.mT, rows).mT, columns)


def _interpolate(low: float, high: float, draws: Tensor) -> Tensor:
    return low + (high - low) * draws


def _positions(size: int, length: Tensor, start: Tensor) -> Tensor:
    """(N, size) where a stretch of (N,) whole pixels is looked at, to be shown at ``size`` pixels."""
    length = length.round().clamp(1, size)
    first = (start * (size - length + 1)).floor()
    # pixels are squares seen at their middles; beyond the last middle of the stretch nothing is looked at
    middles = torch.arange(size, device=start.device) + 0.5
    offsets = (middles * (length / size)[:, None] - 0.5).clamp_min(0).minimum(length[:, None] - 1)
    return first[:, None] + offsets


def _columns(images: Tensor, positions: Tensor) -> Tensor:
    """Columns at (N, K) places, on the line between the two pixels there. No place is out of the image."""
    left = positions.floor()
    index = left.long()[:, None, None].expand(*images.shape[:3], -1)
    right = (index + 1).clamp_max(images.shape[3] - 1)
    return torch.lerp(images.gather(3, index), images.gather(3, right), (positions - left)[:, None, None])


def _sequence(*recipes: Recipe) -> Recipe:
    """One recipe after the other, each with draws of its own."""
    parts = [recipe.draws for recipe in recipes]

    def apply(images: Tensor, draws: Tensor) -> Tensor:
        for recipe, numbers in zip(recipes, draws.split(parts, dim=1), strict=True):
            images = recipe.apply(images, numbers)
        return images

    return Recipe(sum(parts), apply)


def _with_probability(probability: float, recipe: Recipe) -> Recipe:
    """A recipe for a share of the images, by a first draw of each."""

    def apply(images: Tensor, draws: Tensor) -> Tensor:
        chosen = draws[:, :1, None, None] < probability
        return torch.where(chosen, recipe.apply(images, draws[:, 1:]), images)

    return Recipe(1 + recipe.draws, apply)


CROP_FLIP = Recipe(3, partial(crop_flip, padding="reflect"))
JITTER = _with_probability(0.3, Recipe(4, jitter))
FLIP = Recipe(1, flip)
RESIZED_CROP = Recipe(4, resized_crop)

RECIPES = {
    # on CIFAR-10; De et al. (2022)
    "crop_flip": CROP_FLIP,
    # "Ours", whose padding of 20 pixels is for crops of 224
    "crop_flip_jitter": _sequence(CROP_FLIP, JITTER),
    # "RRC"
    "resized_crop": _sequence(RESIZED_CROP, FLIP),
    # "SimCLR"
    "simclr": _sequence(
        JITTER,
        _with_probability(0.2, Recipe(0, lambda images, draws: greyscaled(images))),
        FLIP,
        _with_probability(0.2, Recipe(1, blur)),
        RESIZED_CROP,
    ),
}
