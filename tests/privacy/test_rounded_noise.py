"""Rounded normal and Laplace numbers: the fast way beside intervals, and both beside scipy."""

from collections.abc import Callable, Iterator
from unittest.mock import patch

import mpmath
import numpy as np
import pytest
import torch
from scipy.stats import chisquare, kstest, laplace, norm

from pipeline.privacy import rounded_noise
from pipeline.privacy.rounded_noise import HIGH, LOW, WORD, rounded_laplace, rounded_normal

SURE = 1e-4  # of a p-value, with numbers that are always the same
SCALES = np.array([0.7, 2.0**20.3, 2.0**34])


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


class Words:
    """A generator of these 64-bit words."""

    def __init__(self, *words: int):
        self.words = iter(words)
        self.taken = 0

    def integers(self, high: int, size: int | tuple[int, ...], dtype: type) -> np.ndarray:
        taken = [next(self.words) for _ in range(int(np.prod(size)))]
        self.taken += len(taken)
        return np.array(taken, dtype).reshape(size)


WAYS: dict[str, Callable[[np.random.Generator], np.ndarray]] = {
    "normal of 1 bit": lambda drawn: rounded_normal(drawn, 61, 1),
    "normal of 20 bits": lambda drawn: rounded_normal(drawn, 60, 20),
    "normal of 34 bits": lambda drawn: rounded_normal(drawn, 60, 34),
    "Laplace": lambda drawn: rounded_laplace(drawn, np.tile(SCALES, (20, 1))),
}


@pytest.mark.parametrize("name", WAYS)
def test_the_fast_way_is_that_of_intervals(name: str) -> None:
    fast = WAYS[name](generator())
    with patch.object(rounded_noise, "ERROR", np.inf):
        assert np.array_equal(WAYS[name](generator()), fast)
    assert np.array_equal(fast, np.rint(fast))


def uniforms() -> Iterator[tuple[int, int]]:
    """Where float64 computes worst, and everywhere; in words."""
    low, high = int(LOW / WORD), int(HIGH / WORD)
    yield from ((low, low + 2**40), (low, 2**50), (2**50, 2**63), (2**63, high), (high - 2**40, high))


def test_float64_is_off_by_less_than_it_is_taken_to_be() -> None:
    first, words, worst = generator(), generator(1), 0.0
    for low, high in uniforms():
        chosen = first.integers(low, high, size=200, dtype=np.uint64)
        angles = words.integers(2**64, size=200, dtype=np.uint64)
        uniform, angle = chosen * WORD, torch.from_numpy(angles.view(np.int64) * (2 * np.pi * WORD))
        radius = np.sqrt(-2 * np.log(uniform))
        with mpmath.workprec(200):
            for place, (word, turn) in enumerate(zip(chosen.tolist(), angles.tolist(), strict=True)):
                for last in (0, 1):
                    logarithm = -mpmath.log(mpmath.mpf(word + last) / 2**64)
                    way = mpmath.sqrt(2 * logarithm) * mpmath.cospi(2 * mpmath.mpf(turn + last) / 2**64)
                    worst = max(worst, abs(way - radius[place] * torch.cos(angle)[place].item()))
                    # of a uniform number with a bit less
                    half = -mpmath.log(mpmath.mpf((word >> 1) + last) / 2**63)
                    worst = max(worst, abs(half + np.log((word >> 1) * 2 * WORD)))
    assert worst < rounded_noise.ERROR
    assert worst > rounded_noise.ERROR / 16  # or it could be told closer


def test_more_bits_are_drawn_until_they_decide() -> None:
    """Of a number between two integers to its last bit, and of one whose first word is 0."""
    scale = 3.7
    with mpmath.workprec(200):
        middle = mpmath.exp(-4.5 / mpmath.mpf(scale)) * 2**63
        word = int(mpmath.floor(middle))
        further = int((middle - word) * 2**64)
        radius = mpmath.sqrt(2 * 65 * mpmath.log(2))
    # the larger the uniform number, the smaller the other
    for beyond, expected in ((1, 4), (-1, 5)):
        words = Words(2 * word, further + beyond)
        assert rounded_laplace(words, np.array([scale])).tolist() == [expected]  # type: ignore[arg-type]
        assert words.taken == 2
    words = Words(0, 0, 2**63, 0)
    drawn = rounded_normal(words, 1, 10)  # type: ignore[arg-type]
    assert drawn.tolist() == [int(mpmath.nint(2**10 * radius))]
    assert words.taken == 4


@pytest.mark.parametrize("bits", [0, 2])
def test_normal_integers_have_the_probabilities_of_scipy(bits: int) -> None:
    drawn, most = rounded_normal(generator(), 200_000, bits), 3 * 2**bits
    edges = (np.arange(-most, most) + 0.5) / 2**bits
    chances = np.diff(norm.cdf([-np.inf, *edges, np.inf]))
    counts = np.bincount((drawn.clip(-most, most) + most).astype(int), minlength=2 * most + 1)
    assert chisquare(counts, len(drawn) * chances).pvalue > SURE


def test_laplace_integers_have_the_probabilities_of_scipy() -> None:
    for scale in (0.4, 3.7):
        drawn, most = rounded_laplace(generator(), np.full(200_000, scale)), int(5 * scale) + 1
        chances = np.diff(laplace.cdf([-np.inf, *(np.arange(-most, most) + 0.5), np.inf], scale=scale))
        counts = np.bincount((drawn.clip(-most, most) + most).astype(int), minlength=2 * most + 1)
        assert chisquare(counts, len(drawn) * chances).pvalue > SURE


def test_fine_integers_are_normal_and_their_last_bits_even() -> None:
    drawn = rounded_normal(generator(), 200_000, 21)
    assert kstest(drawn / 2**21, norm.cdf).pvalue > SURE
    # of both numbers of a pair
    first, second = drawn[: 2 * rounded_noise.PAIRS].reshape(2, -1)
    for power in (1, 2):
        assert abs(np.corrcoef(first**power, second**power)[0, 1]) < 4 / rounded_noise.PAIRS**0.5
    large = rounded_laplace(generator(), np.full(200_000, 2.0**21))
    assert kstest(large / 2**21, laplace.cdf).pvalue > SURE
    for numbers in (drawn, large):
        counts = np.bincount(numbers.astype(np.int64) % 64, minlength=64)
        assert chisquare(counts).pvalue > SURE


def test_an_odd_number_of_them_and_many() -> None:
    assert len(rounded_normal(generator(), 7, 10)) == 7
    assert len(set(rounded_normal(generator(), 70_001, 30).tolist())) > 69_000
