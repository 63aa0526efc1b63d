"""Scattering transform of images (Bruna and Mallat 2013; Oyallon and Mallat 2015) with two scales.

An image is filtered with Morlet wavelets of 2 scales and 8 angles, and the moduli of the fine scale are
filtered again at the coarse scale. The image and all moduli are averaged over a Gaussian window and kept at
every fourth pixel: 1 + 16 + 64 channels for each channel of the image. Nothing is fitted, so an image's
features depend on this image alone. Filters, padding and order of channels are those of `Scattering2D(J=2)`
in kymatio 0.3.0, whose import fails with SciPy 1.17; a test compares both transforms.
"""

import math
from functools import lru_cache
from itertools import product

import numpy as np
import torch
from torch import Tensor

SCALES, ANGLES = 2, 8
STRIDE = 2**SCALES  # distance of the pixels that are kept
CHANNELS = 1 + SCALES * ANGLES + ANGLES**2


def scattering(images: Tensor) -> Tensor:
    """(N, C 81, H / 4, W / 4) features of float ``images`` (N, C, H, W) with H = W, a multiple of 4."""
    count, channels, height, width = images.shape
    if height != width or height % STRIDE:
        raise ValueError(
            f"images of {height} x {width}; allowed: squares whose side is a multiple of {STRIDE}"
        )
    size = (height // STRIDE + 2) * STRIDE
    margin = (size - height) // 2
    padded = torch.nn.functional.pad(images, (margin,) * 4, mode="reflect").reshape(-1, size, size)
    wavelets, averages = _filters(size, images.dtype)
    spectrum = torch.fft.fft2(padded)[:, None]
    fine = _moduli(spectrum, wavelets[0], 1)  # (N C, 8, size, size)
    coarse = _moduli(spectrum, wavelets[1], 2)  # (N C, 8, size / 2, size / 2)
    again = _moduli(torch.fft.fft2(fine)[:, :, None], wavelets[1], 2).flatten(1, 2)  # fine angle first
    parts = [(padded[:, None], 0), (fine, 0), (coarse, 1), (again, 1)]
    kept = [averages[scale] @ part @ averages[scale].T for part, scale in parts]
    # the image, the moduli by scale and angle, and the second moduli by the first and the second angle
    features = torch.cat(kept, 1)
    return features.reshape(count, channels * CHANNELS, *features.shape[2:])


def _moduli(spectrum: Tensor, wavelets: Tensor, every: int) -> Tensor:
    """Moduli |image * wavelet| (..., L, m, m) of spectra (..., 1, n, n), every n / m = ``every`` pixels."""
    side = spectrum.shape[-1] // every
    starts = range(0, spectrum.shape[-1], side)
    parts = [
        (..., slice(down, down + side), slice(right, right + side)) for down in starts for right in starts
    ]
    # keeping only some pixels folds the spectrum
    folded = torch.zeros((), dtype=spectrum.dtype)
    for part in parts:
        folded = folded + spectrum[part] * wavelets[part]
    return torch.fft.ifft2(folded / every**2 if every > 1 else folded).abs()


@lru_cache(maxsize=4)
def _filters(size: int, dtype: torch.dtype) -> tuple[tuple[Tensor, ...], tuple[Tensor, Tensor]]:
    """Spectra (8, n, n) of each scale's wavelets, and two (m, n) matrices that average along one axis.

    The first matrix is for whole images. The second is for images at every other pixel, and so its window is
    cut off at the frequencies of such images.
    """
    wavelets = tuple(
        torch.from_numpy(
            np.stack(
                [
                    np.fft.fft2(_morlet(size, scale, (ANGLES // 2 - 1 - angle) * math.pi / ANGLES)).real
                    for angle in range(ANGLES)
                ]
            )
        ).to(dtype)
        for scale in range(SCALES)
    )
    window = sum(_gaussian(np.arange(size) + turn * size) for turn in range(-2, 3))
    spectrum = np.fft.fft(window).real
    half = np.concatenate([spectrum[: size // 4], spectrum[size - size // 4 :]])
    return wavelets, (_average(spectrum, STRIDE, dtype), _average(half, STRIDE // 2, dtype))


def _average(spectrum: np.ndarray, stride: int, dtype: torch.dtype) -> Tensor:
    """(m, n) convolution with a window of ``spectrum`` (n,), kept at every ``stride`` pixels but the ends."""
    pixels = np.eye(len(spectrum))
    averaged = np.fft.ifft(np.fft.fft(pixels, axis=0) * spectrum[:, None], axis=0).real
    return torch.from_numpy(averaged[stride:-stride:stride]).to(dtype)


def _gaussian(places: np.ndarray) -> np.ndarray:
    """Averaging window along one axis, at ``places``."""
    deviation = 0.8 * 2 ** (SCALES - 1)
    return np.exp(-(places**2) / (2 * deviation**2)) / (math.sqrt(2 * math.pi) * deviation)


def _morlet(size: int, scale: int, angle: float) -> np.ndarray:
    """(n, n) Morlet wavelet with period ``size``: a wave in a bell, minus a bell that makes the mean 0."""
    deviation, frequency, slant = 0.8 * 2**scale, 0.75 * math.pi / 2**scale, 4 / ANGLES
    turn = np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
    ellipse = turn @ np.diag([1, slant**2]) @ turn.T / (2 * deviation**2)
    envelope, wave = np.zeros((size, size)), np.zeros((size, size), dtype=complex)
    for down, right in product(range(-2, 3), repeat=2):
        x, y = np.mgrid[down * size : (down + 1) * size, right * size : (right + 1) * size]
        bell = np.exp(-(ellipse[0, 0] * x**2 + 2 * ellipse[0, 1] * x * y + ellipse[1, 1] * y**2))
        envelope += bell
        wave += bell * np.exp(1j * frequency * (x * math.cos(angle) + y * math.sin(angle)))
    return (wave - wave.sum() / envelope.sum() * envelope) * slant / (2 * math.pi * deviation**2)
