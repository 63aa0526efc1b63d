"""The augmentations of Sander et al. against torchvision's own functions, one image at a time."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional

from pipeline.methods.tan import recipes
from pipeline.methods.tan.recipes import RECIPES

BELOW_ONE = 1 - 2**-24  # the largest draw
STILL = 0.9  # a draw by which a thing that is done sometimes is not done


def some(*shape: int) -> Tensor:
    """Noise in which no colour and no place equals another."""
    return torch.rand(shape, generator=torch.Generator().manual_seed(0))


def drawn(name: str, count: int) -> Tensor:
    return torch.rand(count, RECIPES[name].draws, generator=torch.Generator().manual_seed(1))


def cropped(image: Tensor, top: float, left: float, mirror: float) -> Tensor:
    padded = functional.pad(image, [4], padding_mode="reflect")
    crop = functional.crop(padded, int(9 * top), int(9 * left), *image.shape[-2:])
    return flipped(crop, mirror)


def flipped(image: Tensor, draw: float) -> Tensor:
    return functional.horizontal_flip(image) if draw >= 0.5 else image


def jittered(
    image: Tensor, chosen: float, brightness: float, contrast: float, saturation: float, hue: float
) -> Tensor:
    if chosen >= 0.3:
        return image
    image = functional.adjust_brightness(image, 0.2 + 1.6 * brightness)
    image = functional.adjust_contrast(image, 0.2 + 1.6 * contrast)
    image = functional.adjust_saturation(image, 0.2 + 1.6 * saturation)
    return functional.adjust_hue(image, -0.2 + 0.4 * hue)


def boxed(image: Tensor, area: float, ratio: float, top: float, left: float) -> Tensor:
    height, width = image.shape[-2:]
    area = (0.08 + 0.92 * area) * height * width
    ratio = 0.75 * (16 / 9) ** ratio
    high = min(round((area / ratio) ** 0.5), height)
    wide = min(round((area * ratio) ** 0.5), width)
    crop = functional.crop(image, int((height - high + 1) * top), int((width - wide + 1) * left), high, wide)
    return functional.resize(crop, [height, width], antialias=False)


def greyed(image: Tensor, chosen: float) -> Tensor:
    return functional.rgb_to_grayscale(image, len(image)) if chosen < 0.2 else image


def blurred(image: Tensor, chosen: float, sigma: float) -> Tensor:
    return functional.gaussian_blur(image, [3, 3], [1 + sigma]) if chosen < 0.2 else image


def simclr(image: Tensor, *draws: float) -> Tensor:
    image = flipped(greyed(jittered(image, *draws[:5]), draws[5]), draws[6])
    return boxed(blurred(image, *draws[7:9]), *draws[9:])


ONE_BY_ONE: dict[str, Callable[..., Tensor]] = {
    "crop_flip": cropped,
    "crop_flip_jitter": lambda image, *draws: jittered(cropped(image, *draws[:3]), *draws[3:]),
    "resized_crop": lambda image, *draws: flipped(boxed(image, *draws[:4]), draws[4]),
    "simclr": simclr,
}


@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 28, 28), (3, 28, 20)])
@pytest.mark.parametrize("name", RECIPES)
def test_equals_torchvision_image_by_image(name: str, shape: tuple[int, ...]) -> None:
    images = some(100, *shape)
    ends = drawn(name, 100).round() * BELOW_ONE  # each draw at one of its ends
    for draws in (drawn(name, 100), ends):
        expected = [ONE_BY_ONE[name](*each) for each in zip(images, *draws.T.tolist(), strict=True)]
        actual = RECIPES[name].apply(images, draws)
        torch.testing.assert_close(actual, torch.stack(expected), rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", RECIPES)
def test_any_chunk_of_the_images_gives_the_same_copies(name: str) -> None:
    images, draws = some(100, 3, 32, 32), drawn(name, 100)
    kept = images.clone()
    whole = RECIPES[name].apply(images, draws)
    assert torch.equal(images, kept)
    for size in (1, 7):
        pieces = zip(images.split(size), draws.split(size), strict=True)
        assert torch.equal(torch.cat([RECIPES[name].apply(*piece) for piece in pieces]), whole)


@pytest.mark.parametrize("name", RECIPES)
def test_copies_stay_in_range(name: str) -> None:
    images = (
        some(2000, 3, 8, 8).mul(4).sub(1.5).clamp(0, 1)
    )  # much black and white, and grey and pure colours
    copies = RECIPES[name].apply(images, drawn(name, 2000))
    assert copies.shape == images.shape
    assert copies.dtype == images.dtype
    assert copies.min() >= 0
    assert copies.max() <= 1


@pytest.mark.parametrize("name", RECIPES)
def test_all_is_done_where_the_images_are(name: str) -> None:
    images, draws = some(4, 3, 32, 32).to("meta"), drawn(name, 4).to("meta")  # a device other than the CPU
    assert RECIPES[name].apply(images, draws).device.type == "meta"


def test_ranges_are_those_of_torchvision_s_transforms() -> None:
    jitter, box = v2.ColorJitter(0.8, 0.8, 0.8, 0.2), v2.RandomResizedCrop(32)
    for factors in (jitter.brightness, jitter.contrast, jitter.saturation):
        assert factors == pytest.approx(recipes.FACTORS)
    assert jitter.hue == recipes.HUE
    assert box.scale == recipes.AREA
    assert box.ratio == pytest.approx((1 / recipes.RATIO, recipes.RATIO))


@pytest.mark.parametrize(
    ("name", "share"),
    [("crop_flip", 0.0), ("crop_flip_jitter", 0.3), ("resized_crop", 0.0), ("simclr", 1 - 0.7 * 0.8)],
)
def test_colours_change_as_often_as_they_should(name: str, share: float) -> None:
    count = 4000
    images = torch.tensor([0.3, 0.5, 0.4])[None, :, None, None].expand(count, 3, 8, 8)  # all places alike
    copies = RECIPES[name].apply(images, drawn(name, count))
    changed = (copies - images).abs().amax((1, 2, 3)) > 1e-5
    assert abs(changed.float().mean() - share) <= 4 * (share * (1 - share) / count) ** 0.5


def test_blur_is_done_as_often_as_it_should() -> None:
    count = 4000
    draws = torch.full((count, RECIPES["simclr"].draws), STILL)
    draws[:, 9] = BELOW_ONE  # the box is the whole image, almost
    draws[:, 10] = 0.5  # a square
    draws[:, [7, 8]] = drawn("simclr", count)[:, [7, 8]]
    images = some(1, 3, 8, 8).expand(count, 3, 8, 8)
    changed = (RECIPES["simclr"].apply(images, draws) - images.flip(-1)).abs().amax((1, 2, 3)) > 1e-5
    assert abs(changed.float().mean() - 0.2) < 4 * (0.2 * 0.8 / count) ** 0.5


def test_boxes_that_fit_are_drawn_as_torchvision_s_are() -> None:
    count, side = 4000, 32
    across = torch.arange(float(side)).expand(side, side)
    places = torch.stack([across.T, across])  # pixels that know where they were
    actual = recipes.resized_crop(places.expand(count, 2, side, side), drawn("resized_crop", count)[:, :4])
    first = actual.amin((2, 3))
    ours = torch.cat([first, actual.amax((2, 3)) - first + 1], dim=1)
    box = v2.RandomResizedCrop(side)
    torch.manual_seed(2)
    theirs = [box.make_params([places]) for _ in range(count)]
    others = torch.tensor([[p["top"], p["left"], p["height"], p["width"]] for p in theirs]).float()
    for mine, other in zip(summary(ours, side), summary(others, side), strict=True):
        error = (mine.var(0) / len(mine) + other.var(0) / len(other)).sqrt()
        assert ((mine.mean(0) - other.mean(0)).abs() < 4 * error).all()


def summary(boxes: Tensor, side: int) -> tuple[Tensor, Tensor]:
    """Sizes and places, and their squares, of boxes (top, left, height, width) smaller than the image."""
    boxes = boxes[(boxes[:, 2:] < side).all(1)]
    start, length = boxes[:, :2], boxes[:, 2:]
    numbers = torch.cat([length, length.log().diff(dim=1), start / (side - length)], dim=1)
    return numbers, numbers.square()
