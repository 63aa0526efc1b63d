"""Inputs of a network from stored examples: crops and flips of images, and scaling by public statistics."""

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from pipeline.methods.base import as_input

MARGIN = 4  # pixels around an image, which a crop may take in


def crop_flip(
    images: Tensor,
    draws: Tensor,
    side: int | None = None,
    padding: Literal["constant", "reflect"] = "constant",
) -> Tensor:
    """Each image cropped at a random place after padding, and half of them mirrored.

    Args:
        images: (..., C, H, W), uint8 or float.
        draws: three numbers in [0, 1) an image, in the images' order: top and left of its crop, each place
            as likely as any other, and whether it is mirrored (from .5).
        side: of the crops, in pixels; None: as high and wide as the images.
        padding: with zeros ('constant'), or with the image mirrored at its border pixels ('reflect'), which
            takes images larger than the margin.

    Returns:
        Crops (..., C, side, side).

    Raises:
        ValueError: ``side`` is larger than a padded image.
    """
    channels, *sizes = images.shape[-3:]
    height, width = sizes if side is None else (side, side)
    margins = [size + 2 * MARGIN - target for size, target in zip(sizes, (height, width), strict=True)]
    if min(margins) < 0:
        raise ValueError(
            f"side: {side} is too large for images padded with {MARGIN} pixels; "
            f"allowed: 1 to {min(sizes) + 2 * MARGIN}"
        )
    top, left, mirror = draws.reshape(-1, 3).T
    padded = F.pad(images.flatten(0, -4), (MARGIN,) * 4, mode=padding)
    rows = _offsets(top, margins[0]) + torch.arange(
        height, device=images.device
    )  # (N, H) of the padded image
    pixels = torch.arange(width, device=images.device)
    columns = _offsets(left, margins[1]) + torch.where(
        mirror[:, None] < 0.5, pixels, pixels.flip(0)
    )  # (N, W)
    shape = (len(padded), channels, height)
    cropped = padded.gather(2, rows[:, None, :, None].expand(*shape, padded.shape[3]))
    return cropped.gather(3, columns[:, None, None].expand(*shape, width)).unflatten(0, images.shape[:-3])


def centred(images: Tensor, side: int) -> Tensor:
    """Images (..., C, H, W) brought to (..., C, side, side), by zeros or a cut, the same on opposite sides.

    What is shown at test where training saw crops of ``side``. Of an odd difference the end gets the larger
    part of zeros, the start that of a cut.
    """
    height, width = images.shape[-2:]
    if height == width == side:
        return images
    top, left = ((side - size) // 2 for size in (height, width))
    return F.pad(images, (left, side - width - left, top, side - height - top))


def _offsets(draws: Tensor, last: int) -> Tensor:
    """(N, 1) whole pixels, evenly from 0 to ``last``."""
    return (draws * (last + 1)).long()[:, None]


class Transforms:
    """Two views of the same examples: as they are at test, and augmented as in training.

    Images are scaled to mean 0 and standard deviation 1 a channel. Both are those of D_pub; the papers' own
    constants are those of the whole training data, private examples included.
    """

    def __init__(self, public: Tensor, side: int | None):
        """``public`` is D_pub as stored, (M, C, H, W) images or (M, T) tokens; ``side`` S or None."""
        self.side = side
        self.scale: tuple[Tensor, Tensor] | None = None
        if public.dim() == 4:
            pixels = as_input(public).transpose(0, 1).flatten(1)
            self.scale = pixels.mean(1)[:, None, None], pixels.std(1).clamp_min(1e-6)[:, None, None]

    def plain(self, stored: Tensor) -> Tensor:
        """(..., C, S, S) images padded equally on all sides to side S; without one as they are."""
        if self.side is not None:
            stored = centred(stored, self.side)
        return self.scaled(as_input(stored))

    def augmented(self, stored: Tensor, draws: Tensor) -> Tensor:
        """(..., C, S, S) random crops of side S, half of them mirrored; ``draws`` as for `crop_flip`."""
        return self.scaled(as_input(crop_flip(stored, draws, self.side)))

    def scaled(self, inputs: Tensor) -> Tensor:
        """(..., C, H, W) floats in [0, 1] scaled by the public images' statistics; tokens as they are."""
        return inputs if self.scale is None else (inputs - self.scale[0]) / self.scale[1]
