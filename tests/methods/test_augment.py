"""Crop and flip against torchvision's own functions, one image at a time."""

import pytest
import torch
from torch import Tensor
from torchvision.transforms import functional

from pipeline.methods.augment import MARGIN, crop_flip

MIDDLE = MARGIN / (2 * MARGIN + 1) + 1e-3  # a draw whose crop is the image as it was


def some(*shape: int, dtype: torch.dtype = torch.uint8) -> Tensor:
    return torch.randint(1, 256, shape, generator=torch.Generator().manual_seed(0)).to(dtype)


def draws(count: int) -> Tensor:
    return torch.rand(count, 3, generator=torch.Generator().manual_seed(1))


def one_by_one(images: Tensor, draws: Tensor) -> Tensor:
    """The definition, by torchvision."""
    out = []
    for image, (top, left, mirror) in zip(images, draws.tolist(), strict=True):
        padded = functional.pad(image, [MARGIN])
        crop = functional.crop(padded, int(9 * top), int(9 * left), *image.shape[-2:])
        out.append(functional.hflip(crop) if mirror >= 0.5 else crop)
    return torch.stack(out)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 28, 20)])
def test_equals_torchvision_image_by_image(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    images = some(40, *shape, dtype=dtype)
    found = crop_flip(images, draws(40))
    assert found.dtype == dtype
    assert torch.equal(found, one_by_one(images, draws(40)))


def test_replicas_are_a_leading_dimension() -> None:
    images = some(2, 5, 3, 32, 32)
    found = crop_flip(images, draws(10).reshape(2, 15))
    assert torch.equal(found.flatten(0, 1), one_by_one(images.flatten(0, 1), draws(10)))
    assert found.shape == images.shape


def test_the_middle_crop_is_the_image_and_a_flip_its_mirror() -> None:
    images = some(1, 3, 32, 32)
    assert torch.equal(crop_flip(images, torch.tensor([MIDDLE, MIDDLE, 0.49])), images)
    assert torch.equal(crop_flip(images, torch.tensor([MIDDLE, MIDDLE, 0.5])), images.flip(-1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_farthest_draws_stay_inside_the_margin(dtype: torch.dtype) -> None:
    last = torch.nextafter(torch.ones((), dtype=dtype), torch.zeros((), dtype=dtype))  # below 1
    image = some(1, 1, 10, 10)
    far = crop_flip(image, torch.stack([last, torch.zeros_like(last), torch.zeros_like(last)]))[0, 0]
    assert torch.equal(far[:6, 4:], image[0, 0, 4:, :6])  # four pixels up, and four to the right
    assert not far[6:].any()
    assert not far[:, :4].any()


def test_places_are_drawn_evenly() -> None:
    image = torch.zeros(1, 9, 9, dtype=torch.uint8)
    image[0, 4, 4] = 1  # wherever it goes it stays inside
    count = 40_500
    found = crop_flip(image.expand(count, 1, 9, 9), draws(count))
    seen = found.sum((0, 1), dtype=torch.long)
    expected = count / 81
    assert seen.sum() == count
    assert (seen - expected).abs().max() < 5 * expected**0.5
