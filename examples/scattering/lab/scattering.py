"""The scattering transform of images (Bruna and Mallat 2013; Oyallon and Mallat 2015) with two scales.

Morlet wavelets of 2 scales and 8 angles, their moduli once and twice, each averaged over a Gaussian window
and kept at every fourth pixel: 1 + 16 + 64 channels for each of an image's own. Nothing is fitted, so that an
image's features are a function of that image alone. The filters, the padding and the order of channels are
those of kymatio 0.3.0's `Scattering2D(J=2)`, whose import fails beside SciPy 1.17; a test compares the two.
"""

import math
from functools import lru_cache
from itertools import product

import numpy as np
import torch
from torch import Tensor

SCALES, ANGLES = 2, 8
STRIDE = 2**SCALES  # of the pixels that are kept
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
    # scales and angles of the first wavelet, each before those of the second that follow it
    features = torch.cat(kept, 1)
    return features.reshape(count, channels * CHANNELS, *features.shape[2:])


def _moduli(spectrum: Tensor, wavelets: Tensor, every: int) -> Tensor:
    """|images * wavelet| at every so many pixels: (..., L, m, m) of spectra (..., 1, n, n), m = n / every."""
    side = spectrum.shape[-1] // every
    starts = range(0, spectrum.shape[-1], side)
    parts = [
        (..., slice(down, down + side), slice(right, right + side)) for down in starts for right in starts
    ]
    # keeping every other pixel folds the spectrum
    folded = torch.zeros((), dtype=spectrum.dtype)
    for part in parts:
        folded = folded + spectrum[part] * wavelets[part]
    return torch.fft.ifft2(folded / every**2 if every > 1 else folded).abs()


@lru_cache(maxsize=4)
def _filters(size: int, dtype: torch.dtype) -> tuple[tuple[Tensor, ...], tuple[Tensor, Tensor]]:
    """Spectra (8, n, n) of each scale's wavelets, and (m, n) matrices that average images of each side.

    The second matrix is for images at every other pixel, whose average is cut off at their own frequencies.
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
    """(m, n) convolution with a window of ``spectrum`` (n,), at every ``stride`` pixels but the outermost."""
    pixels = np.eye(len(spectrum))
    averaged = np.fft.ifft(np.fft.fft(pixels, axis=0) * spectrum[:, None], axis=0).real
    return torch.from_numpy(averaged[stride:-stride:stride]).to(dtype)


def _gaussian(places: np.ndarray) -> np.ndarray:
    """The averaging window along one axis."""
    deviation = 0.8 * 2 ** (SCALES - 1)
    return np.exp(-(places**2) / (2 * deviation**2)) / (math.sqrt(2 * math.pi) * deviation)


def _morlet(size: int, scale: int, angle: float) -> np.ndarray:
    """(n, n) Morlet wavelet, with period ``size``: a wave in an ellipse, less what it averages to."""
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
