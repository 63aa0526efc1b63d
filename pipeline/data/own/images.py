"""Folders of images by class. Sizes come from the headers, before any image is unpacked."""

import struct
import warnings
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

from dprepro.errors import UserError, notice, shown
from dprepro.pipeline.data.formats import Examples
from dprepro.pipeline.data.own.files import images_of
from dprepro.pipeline.files import OWN_BYTES, OWN_PIXELS

FORMATS = ("PNG", "JPEG", "PPM", "BMP", "WEBP")
GREY = {"1", "L", "LA"}
PLAIN = GREY | {"P", "PA", "RGB", "RGBA"}
ORIENTATION, UPRIGHT = 0x0112, 1  # EXIF's tag, and its value for pixels that are stored as they are seen
DEEP = {"I", "I;16", "I;16B", "I;16L", "F"}  # modes whose values don't fit into a byte
_CORRUPT = (
    *(OSError, SyntaxError, ValueError, TypeError, EOFError, IndexError, KeyError, OverflowError),
    *(struct.error, zlib.error, MemoryError),
)


def read(folder: Path, classes: Sequence[str], shape: tuple[int, int, int], resize: bool) -> Examples:
    """Images uint8 (N, C, H, W) of ``folder/CLASS/``, class by class, each in the order of its names.

    Args:
        folder: folder of the classes' folders.
        classes: names of the classes, in the order of their labels.
        shape: (C, H, W) of each image.
        resize: whether images of another size are cropped to the centre and scaled.

    Raises:
        UserError: a file is no image, is of another size, or is too large.
    """
    images = [(path, label) for label, each in enumerate(classes) for path in images_of(folder / each)]
    check_size(folder, len(images), shape)
    inputs = np.empty((len(images), *shape), np.uint8)
    for pixels, (path, _) in zip(inputs, images, strict=True):
        pixels[:] = read_image(path, shape, resize)
    return Examples(inputs, np.array([label for _, label in images], np.int64))


def check_size(folder: Path, count: int, shape: tuple[int, int, int]) -> None:
    """Make sure that ``count`` images of ``shape`` (C, H, W) need no more memory than allowed.

    Raises:
        UserError: the images need more.
    """
    size = count * int(np.prod(shape))
    if size > OWN_BYTES:
        raise UserError(f"{folder}: {count:,} images would take {size:,} bytes; allowed: {OWN_BYTES:,}")


def look(path: Path) -> tuple[int, int, bool]:
    """Height and width of an image, and whether it is grey.

    Raises:
        UserError: the file is no image, or the image is too large.
    """
    with _opened(path) as image:
        return image.height, image.width, image.mode in GREY


def read_image(path: Path, shape: tuple[int, int, int], resize: bool) -> np.ndarray:
    """Pixels uint8 (C, H, W) of one image; arguments and errors as in `read`."""
    channels, height, width = shape
    with _opened(path) as image:
        if not resize and (image.height, image.width) != (height, width):
            raise UserError(
                f"{path}: {image.height}x{image.width} pixels instead of {height}x{width}; only data "
                "with `resize: true` are cut and scaled"
            )
        if channels == 1 and image.mode not in GREY:
            raise UserError(f"{path}: is in colour; allowed: grey, as data of 1 channel are")
        opaque = _opaque(image)
        was_transparent, plain = opaque is not image, opaque.convert("L" if channels == 1 else "RGB")
        if plain.size != (width, height):
            plain = ImageOps.fit(plain, (width, height), Image.Resampling.BILINEAR)
        pixels = np.asarray(plain).reshape(height, width, channels).transpose(2, 0, 1)
    if was_transparent:
        notice(f"{path.parent}: transparent images are put on a white ground")
    return pixels


def _opaque(image: Image.Image) -> Image.Image:
    """``image`` on a white ground, if a part of it is transparent."""
    if not image.has_transparency_data:
        return image
    layers = image.convert("RGBA")
    if layers.getchannel("A").getextrema() == (255, 255):
        return image
    ground = Image.new("RGBA", layers.size, "white")
    return Image.alpha_composite(ground, layers)


@contextmanager
def _opened(path: Path) -> Iterator[Image.Image]:
    """Open an image and check its header. Errors of Pillow become a UserError of one line."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # such as of a palette's transparency, which a conversion drops
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(path, formats=FORMATS) as image:
                if image.width * image.height > OWN_PIXELS:
                    size = f"{image.height}x{image.width} pixels"
                    raise UserError(f"{path}: {size}; allowed: up to {OWN_PIXELS:,} in an image")
                if image.mode in DEEP:
                    raise UserError(f"{path}: more than 8 bits a value; allowed: 8")
                if image.mode not in PLAIN:
                    raise UserError(f"{path}: colours are {image.mode}; allowed: grey or RGB")
                if getattr(image, "is_animated", False):
                    raise UserError(f"{path}: is animated; allowed: one picture a file")
                if (turned := image.getexif().get(ORIENTATION, UPRIGHT)) != UPRIGHT:
                    raise UserError(
                        f"{path}: EXIF orientation {turned} asks viewers to turn it; allowed: pixels stored "
                        "as they are seen"
                    )
                if image.format == "PNG":  # reading its pixels doesn't show that the last chunk is missing
                    with Image.open(path, formats=("PNG",)) as whole:
                        whole.verify()
                yield image
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as problem:
        raise UserError(f"{path}: more pixels than are allowed, {OWN_PIXELS:,}") from problem
    except _CORRUPT as problem:
        why = f"not an image of {', '.join(FORMATS)}, or truncated: {shown(str(problem))}"
        raise UserError(f"{path}: {why}") from problem
