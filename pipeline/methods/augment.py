"""Inputs of a network from stored examples: crops and flips of images, and scaling by public statistics."""

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from dprepro.errors import UserError
from dprepro.pipeline.methods.base import as_input

MARGIN = 4  # pixels of padding around an image before it is cropped


def crop_flip(
    images: Tensor,
    uniforms: Tensor,
    side: int | None = None,
    padding: Literal["constant", "reflect"] = "constant",
) -> Tensor:
    """Crop each image at a random position after padding, and mirror half of the crops.

    Args:
        images: (..., C, H, W), uint8 or float.
        uniforms: three uniform random numbers in [0, 1) per image, in the order of the images. The first two
            choose the top and the left edge of the crop. If the third is .5 or more, the crop is mirrored.
        side: side of the crops in pixels; None: the images' size.
        padding: zeros ('constant'), or the image mirrored at its border pixels ('reflect'). 'reflect' needs
            images larger than `MARGIN`.

    Returns:
        Crops (..., C, side, side).

    Raises:
        UserError: ``side`` is larger than a padded image, or an image is too small for 'reflect'.
    """
    channels, *sizes = images.shape[-3:]
    if padding == "reflect" and min(sizes) <= MARGIN:
        raise UserError(
            f"settings.augment: 'crop_flip' pads images by {MARGIN} mirrored pixels, and these are "
            f"{sizes[0]}x{sizes[1]}; allowed: images of at least {MARGIN + 1}x{MARGIN + 1}, or 'none'"
        )
    height, width = sizes if side is None else (side, side)
    margins = [size + 2 * MARGIN - target for size, target in zip(sizes, (height, width), strict=True)]
    if min(margins) < 0:
        raise UserError(
            f"settings.side: {side} is too large for images padded with {MARGIN} pixels; "
            f"allowed: 1 to {min(sizes) + 2 * MARGIN}"
        )
    top, left, mirror = uniforms.reshape(-1, 3).T
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
    """Pad images (..., C, H, W) with 0, or crop them, equally on opposite sides; gives (..., C, side, side).

    This is for tests of a network that was trained on crops of ``side``. If the difference is odd, one more
    row or column is padded at the end, or cropped at the start.
    """
    height, width = images.shape[-2:]
    if height == width == side:
        return images
    top, left = ((side - size) // 2 for size in (height, width))
    return F.pad(images, (left, side - width - left, top, side - height - top))


def _offsets(uniforms: Tensor, last: int) -> Tensor:
    """(N, 1) offsets in whole pixels from 0 to ``last``, for ``uniforms`` (N,) in [0, 1)."""
    return (uniforms * (last + 1)).long()[:, None]


class Transforms:
    """Network inputs from stored examples: with augmentation for training, without it for tests.

    Images are scaled to mean 0 and standard deviation 1 per channel, by the statistics of the public examples
    D_pub. The papers' constants are statistics of all training data, private examples included.
    """

    def __init__(self, public: Tensor, side: int | None):
        """``public``: D_pub as stored, (M, C, H, W) or (M, T). ``side``: S in pixels; None: as stored."""
        self.side = side
        self.scale: tuple[Tensor, Tensor] | None = None
        if public.dim() == 4:
            pixels = as_input(public).transpose(0, 1).flatten(1)
            self.scale = pixels.mean(1)[:, None, None], pixels.std(1).clamp_min(1e-6)[:, None, None]

    def plain(self, stored: Tensor) -> Tensor:
        """Inputs without augmentation; with a `side` S, images are padded or cropped to (..., C, S, S)."""
        if self.side is not None:
            stored = centred(stored, self.side)
        return self.scaled(as_input(stored))

    def augmented(self, stored: Tensor, uniforms: Tensor) -> Tensor:
        """Random crops (..., C, S, S) of side S, half of them mirrored; ``uniforms`` as for `crop_flip`."""
        return self.scaled(as_input(crop_flip(stored, uniforms, self.side)))

    def scaled(self, inputs: Tensor) -> Tensor:
        """(..., C, H, W) floats in [0, 1] scaled by the public images' statistics; tokens stay unchanged."""
        return inputs if self.scale is None else (inputs - self.scale[0]) / self.scale[1]
