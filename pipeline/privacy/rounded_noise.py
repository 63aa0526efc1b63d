"""Normal and Laplace numbers rounded to integers, with exactly the probabilities that real ones would have.

A number is a function of uniform real numbers, of a pair (Box and Muller 1958) or of one (inversion), of each
of which 64 bits are drawn. What float64 makes of these is off by less than `ERROR`, the bits that weren't
drawn included. Where nothing so near rounds to another integer, that integer is the one. Elsewhere, once in
millions of numbers at a scale of 2^20, interval arithmetic decides, with more bits until it can. So nothing
is left of imprecision that a delta would have to be larger by: what is rounded is a real number, if the bits
are random. Of AES in counter mode they are as far as AES-128 is a random permutation, whose blocks never come
twice: 2^24 numbers, of 2^23 blocks, give that away with 2^-83 (n^2 / 2^129; Bellare et al. 1997).
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from mpmath.ctx_iv import MPIntervalContext
from mpmath.libmp import finf, to_int

# Of what float64 computes of uniform numbers u between these, at scale 1: their last bit (2^-64 / u) and
# rounding (2^-53) move sqrt(-2 ln u) by less than 2^-45, most at the upper end, and with a cosine or a
# logarithm that is off by an ulp or four all else comes to less than 2^-46.
ERROR = 2.0**-44
LOW, HIGH = 2.0**-18, 1 - 2.0**-19
PAIRS = 30_000  # at once: few enough for torch not to divide them among threads
WORD = 2.0**-64

INTERVALS = MPIntervalContext()
INTERVALS.prec = 320  # bits; more are drawn once in 2^200 times
Real = Callable[..., Sequence[Any]]  # intervals of numbers, of intervals of uniform ones


def rounded_normal(generator: np.random.Generator, size: int, bits: int) -> np.ndarray:
    """(size,) integers in float64: 2^bits times independent standard normals, rounded to the nearest."""
    noise = np.empty(size + size % 2)

    def exact(u: Any, v: Any) -> Sequence[Any]:
        radius, angle = INTERVALS.sqrt(-2 * INTERVALS.log(u)) * 2**bits, 2 * INTERVALS.pi * v
        return radius * INTERVALS.cos(angle), radius * INTERVALS.sin(angle)

    for start in range(0, len(noise), 2 * PAIRS):
        block = noise[start : start + 2 * PAIRS].reshape(2, -1)
        words = generator.integers(2**64, size=block.shape, dtype=np.uint64)
        # as signed integers, which become floats several times as fast
        uniform = (words[0] >> np.uint64(1)).view(np.int64) * (2 * WORD)
        # -pi to pi: of small angles float64 has more digits than of such beside 2 pi
        angle = torch.from_numpy(words[1].view(np.int64) * (2 * np.pi * WORD))
        real = np.empty_like(block)
        # by torch, whose cosine is ten times as fast as numpy's
        for function, row in zip((torch.cos, torch.sin), torch.from_numpy(real), strict=True):
            function(angle, out=row)
        with np.errstate(divide="ignore", invalid="ignore"):  # of a word that is 0
            real *= np.sqrt(np.log(uniform) * (-2 * 4.0**bits))
            ambiguous = _round(real, 2.0**bits * ERROR, block)
        if ambiguous is not None or uniform.min() < LOW or uniform.max() > HIGH:
            undecided = (
                (uniform < LOW) | (uniform > HIGH) | (False if ambiguous is None else ambiguous.any(0))
            )
            for index in np.flatnonzero(undecided):
                block[:, index] = _round_exactly(exact, words[:, index], generator)
    return noise[:size]


def rounded_laplace(generator: np.random.Generator, scales: np.ndarray) -> np.ndarray:
    """Integers in float64, of the shape of ``scales``: these times Laplace numbers of scale 1, rounded."""
    words = generator.integers(2**64, size=scales.shape, dtype=np.uint64)
    uniform = (words >> np.uint64(1)).view(np.int64) * (2 * WORD)
    real = scales * -np.log(np.maximum(uniform, WORD))
    noise = np.empty(scales.shape)
    ambiguous = _round(real, scales * ERROR, noise)
    for index in zip(*np.nonzero((uniform < LOW) | (False if ambiguous is None else ambiguous)), strict=True):
        scale = float(scales[index])
        # the last bit is the sign, and not one of the uniform number's
        (noise[index],) = _round_exactly(
            lambda u, scale=scale: [-scale * INTERVALS.log(u)], words[index] >> np.uint64(1), generator, 63
        )
    return np.where(words & np.uint64(1), -noise, noise)


def _round(real: np.ndarray, error: np.ndarray | float, noise: np.ndarray) -> np.ndarray | None:
    """Round into ``noise``; which numbers, off by ``error``, may round to another integer; None: none."""
    np.rint(real, out=noise)
    real -= noise
    np.abs(real, out=real)
    # what is not a number, of a word that is 0, hides no other
    return None if real.max() < 0.5 - np.max(error) else real >= 0.5 - error


def _round_exactly(
    exact: Real, words: np.ndarray, generator: np.random.Generator, width: int = 64
) -> list[int]:
    """The integers that the numbers ``exact`` makes of uniform ones round to, of which ``words`` begin."""
    prefixes = [int(word) for word in np.atleast_1d(words)]
    while True:
        uniform = [INTERVALS.mpf([word, word + 1]) / 2**width for word in prefixes]
        endpoints = [(number.a._mpi_[0], number.b._mpi_[1]) for number in exact(*uniform)]
        if all(high != finf for _, high in endpoints):
            low, high = ([to_int(bound, "n") for bound in bounds] for bounds in zip(*endpoints, strict=True))
            if low == high:
                return low
        extra_words = generator.integers(2**64, size=len(prefixes), dtype=np.uint64)
        prefixes = [
            (word << 64) + int(extra_word) for word, extra_word in zip(prefixes, extra_words, strict=True)
        ]
        width += 64
