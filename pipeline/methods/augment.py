"""Augmentation of training images: the crop and flip that networks for CIFAR-10 are usually trained with."""

import torch
from torch import Tensor
from torch.nn import functional as F

MARGIN = 4  # pixels of zeros around an image, of which a crop may take in as many on each side


def crop_flip(images: Tensor, draws: Tensor) -> Tensor:
    """Each image cropped at a random place after padding with zeros, and half of them mirrored.

    Args:
        images: (..., C, H, W), uint8 or float; the crops have the same shape.
        draws: three numbers in [0, 1) an image, in the images' order: top and left of its crop, and whether
            it is mirrored (from .5).
    """
    channels, height, width = images.shape[-3:]
    top, left, mirror = draws.reshape(-1, 3).T
    padded = F.pad(images.flatten(0, -4), (MARGIN,) * 4)
    rows = _offsets(top) + torch.arange(height, device=images.device)  # (N, H) of the padded image
    across = torch.arange(width, device=images.device)
    columns = _offsets(left) + torch.where(mirror[:, None] < 0.5, across, across.flip(0))  # (N, W)
    shape = (len(padded), channels, height)
    cropped = padded.gather(2, rows[:, None, :, None].expand(*shape, padded.shape[3]))
    return cropped.gather(3, columns[:, None, None].expand(*shape, width)).reshape(images.shape)


def _offsets(draws: Tensor) -> Tensor:
    """(N, 1) whole pixels, evenly from 0 to 2 `MARGIN`."""
    return (draws * (2 * MARGIN + 1)).long()[:, None]
