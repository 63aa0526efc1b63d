"""Crop and flip against torchvision's own functions, one image at a time."""

from typing import Literal

import pytest
import torch
from torch import Tensor
from torchvision.transforms import functional

from dprepro.errors import UserError
from dprepro.pipeline.methods.augment import MARGIN, centred, crop_flip


def some(*shape: int, dtype: torch.dtype = torch.uint8) -> Tensor:
    return torch.randint(1, 256, shape, generator=torch.Generator().manual_seed(0)).to(dtype)


def draws(count: int) -> Tensor:
    return torch.rand(count, 3, generator=torch.Generator().manual_seed(1))


def one_by_one(images: Tensor, draws: Tensor, side: int | None = None, padding: str = "constant") -> Tensor:
    """The definition, by torchvision."""
    out = []
    for image, (top, left, mirror) in zip(images, draws.tolist(), strict=True):
        padded = functional.pad(image, [MARGIN], padding_mode=padding)
        height, width = image.shape[-2:] if side is None else (side, side)
        places = [size - kept + 1 for size, kept in zip(padded.shape[-2:], (height, width), strict=True)]
        crop = functional.crop(padded, int(places[0] * top), int(places[1] * left), height, width)
        out.append(functional.hflip(crop) if mirror >= 0.5 else crop)
    return torch.stack(out)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 28, 20)])
@pytest.mark.parametrize("padding", ["constant", "reflect"])
def test_equals_torchvision_image_by_image(
    padding: Literal["constant", "reflect"], shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    images = some(40, *shape, dtype=dtype)
    actual = crop_flip(images, draws(40), padding=padding)
    assert actual.dtype == dtype
    assert torch.equal(actual, one_by_one(images, draws(40), padding=padding))


@pytest.mark.parametrize("side", [32, 36, 28, 20])
@pytest.mark.parametrize("shape", [(3, 28, 28), (1, 28, 30)])
def test_crops_of_another_size_equal_torchvision_too(shape: tuple[int, ...], side: int) -> None:
    images = some(40, *shape)
    actual = crop_flip(images, draws(40), side)
    assert actual.shape == (40, shape[0], side, side)
    assert torch.equal(actual, one_by_one(images, draws(40), side))


def test_a_crop_larger_than_the_padded_image_is_refused() -> None:
    with pytest.raises(UserError, match=r"settings.side: 37 is too large .* allowed: 1 to 36"):
        crop_flip(some(2, 1, 30, 28), draws(2), 37)


def test_images_too_small_to_be_mirrored_are_refused() -> None:
    assert crop_flip(some(2, 1, 5, 5), draws(2), padding="reflect").shape == (2, 1, 5, 5)
    with pytest.raises(UserError, match=r"settings.augment: .* are 5x4; allowed: images of at least 5x5"):
        crop_flip(some(2, 1, 5, 4), draws(2), padding="reflect")


@pytest.mark.parametrize("side", [28, 32, 33, 20, 21])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_centred_images_lie_in_the_middle(side: int, dtype: torch.dtype) -> None:
    images = some(2, 3, 1, 28, 24, dtype=dtype)
    actual = centred(images, side)
    assert actual.dtype == dtype
    assert actual.shape == (2, 3, 1, side, side)
    large, start = torch.zeros(2, 3, 1, 60, 60, dtype=dtype), (60 - side) // 2  # a black wall behind it
    top, left = (start + (side - size) // 2 for size in (28, 24))
    large[..., top : top + 28, left : left + 24] = images
    assert torch.equal(actual, large[..., start : start + side, start : start + side])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_farthest_draws_stay_inside_the_margin(dtype: torch.dtype) -> None:
    last = torch.nextafter(torch.ones((), dtype=dtype), torch.zeros((), dtype=dtype))  # below 1
    image = some(1, 1, 10, 10)
    far = crop_flip(image, torch.stack([last, torch.zeros_like(last), torch.zeros_like(last)]))[0, 0]
    assert torch.equal(far[:6, 4:], image[0, 0, 4:, :6])  # four pixels up, and four to the right
    assert not far[6:].any()
    assert not far[:, :4].any()
