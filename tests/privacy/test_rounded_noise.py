"""Rounded normal and Laplace numbers: the fast way beside intervals, and both beside scipy."""

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import mpmath
import numpy as np
import pytest
import torch
from scipy.stats import chisquare, kstest, laplace, norm

from dprepro.noise import rounded_noise, streams
from dprepro.noise.rounded_noise import (
    CELL_BITS,
    INDEX_BITS,
    LONGEST,
    LOW,
    REACH,
    SHORT,
    TICKET,
    UNIT_BITS,
    WORD,
    cells,
    rounded_laplace,
    rounded_normal,
    table,
)

SURE = 1e-4  # of a p-value, with numbers that are always the same
SCALES = np.array([0.7, 2.0**20.3, 2.0**34])


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


class Words:
    """A generator of these numbers, whatever is asked for."""

    def __init__(self, *words: int):
        self.words = iter(words)
        self.taken = 0

    def integers(self, high: int, size: int | tuple[int, ...] | None = None, dtype: type = np.int64) -> Any:
        if size is None:
            return self.integers(high, 1)[0]
        taken = [next(self.words) for _ in range(int(np.prod(size)))]
        assert all(0 <= word < high for word in taken)
        self.taken += len(taken)
        return np.array(taken, dtype).reshape(size)


def normals(drawn: Any, size: int, bits: int) -> np.ndarray:
    noise = np.empty(size, table(bits).numbers.dtype)
    rounded_normal([drawn], [noise], bits)
    return noise


WAYS: dict[str, tuple[str, Callable[[np.random.Generator], np.ndarray]]] = {
    "normal of 1 bit": ("HEIGHT_ERROR", lambda drawn: normals(drawn, 6001, 1)),
    "normal of 20 bits": ("HEIGHT_ERROR", lambda drawn: normals(drawn, 6000, 20)),
    "normal of 34 bits": ("HEIGHT_ERROR", lambda drawn: normals(drawn, 6000, 34)),
    "Laplace": ("UNIFORM_ERROR", lambda drawn: rounded_laplace(drawn, np.tile(SCALES, (20, 1)))),
}


@pytest.mark.parametrize("name", WAYS)
def test_the_fast_way_is_that_of_intervals(name: str) -> None:
    error, way = WAYS[name]
    fast = way(generator())
    with patch.object(rounded_noise, error, np.inf):
        assert np.array_equal(way(generator()), fast)
    assert np.array_equal(fast, np.rint(fast))


def density(point: float) -> mpmath.mpf:
    """Height of the normal density in units."""
    return mpmath.npdf(point) * mpmath.mpf(2) ** (UNIT_BITS - CELL_BITS)


def test_every_cell_is_covered_exactly_up_to_the_density() -> None:
    """The table's share lies under the density, and with the rest's above it, all over each cell."""
    covered, rest, tickets = cells()
    right = range(len(rest) // 2, len(rest))
    with mpmath.workprec(100):
        for number, cell in enumerate(right):
            inner, outer = (density((number + edge) / 2**CELL_BITS) for edge in (0, 1))
            assert covered[cell] <= outer < covered[cell] + 2 ** (UNIT_BITS - INDEX_BITS)
            assert inner <= covered[cell] + rest[cell] <= inner + TICKET
    assert np.array_equal(covered, covered[::-1])
    assert np.array_equal(rest, rest[::-1])
    assert np.array_equal(np.bincount(tickets), [*(rest // TICKET), 1])


@pytest.mark.parametrize("bits", [0, SHORT, SHORT + 1, LONGEST])
def test_the_table_has_each_cell_as_often_as_its_height_says(bits: int) -> None:
    numbers, entries, fraction_bits, shift = table(bits)
    starts = numbers + (np.arange(2**INDEX_BITS) << fraction_bits).astype(numbers.dtype)
    used = (starts[:entries] - 2 ** (shift - 1)) / 2**fraction_bits + REACH * 2**CELL_BITS
    counts = np.bincount(used.astype(int), minlength=len(cells().table))
    assert np.array_equal(used, used.astype(int))
    assert np.array_equal(counts << (UNIT_BITS - INDEX_BITS), cells().table)
    # the last bit of a fraction is finer than half an integer
    assert shift == CELL_BITS + fraction_bits - bits >= 1


def test_what_the_table_leaves_out_has_the_probabilities_of_the_rest() -> None:
    cell, positions = rounded_noise._rest([generator()], np.array([200_000]))
    edges = np.arange(-REACH << CELL_BITS, (REACH << CELL_BITS) + 1) / 2**CELL_BITS
    chances = np.diff(norm.cdf(edges)) - cells().table / 2.0**UNIT_BITS
    assert (chances > 0).all()
    # cells of too small a chance together
    groups = np.minimum(np.abs(np.arange(len(chances)) - len(chances) // 2 + 0.5), 4.5 * 2**CELL_BITS)
    places = (cell + len(chances) // 2).clip(0, len(chances) - 1)
    counts = np.bincount(places, minlength=len(chances))
    likely = groups < groups.max()
    observed = [*counts[likely], counts[~likely].sum()]
    expected = np.array([*chances[likely], chances[~likely].sum()]) * len(cell) / chances.sum()
    assert chisquare(observed, expected).pvalue > SURE
    # within a cell far out the density falls, and the table covers its lowest height
    steep = (cell == 2**CELL_BITS) | (cell == -1 - 2**CELL_BITS)
    outward = np.where(cell < 0, 1 - positions * WORD, positions * WORD)[steep]
    ends = norm.cdf(1 + np.array([0, 1]) / 2**CELL_BITS)
    floor = cells().table[(REACH + 1) << CELL_BITS] / 2.0**UNIT_BITS

    def within(at: np.ndarray) -> np.ndarray:
        share = norm.cdf(1 + at / 2**CELL_BITS) - ends[0] - floor * at
        return np.asarray(share / (ends[1] - ends[0] - floor))

    assert kstest(outward, within).pvalue > SURE


class InTails:
    """A generator that always draws the last ticket, which is that of the tails."""

    def __init__(self) -> None:
        self.drawn = generator()

    def integers(self, high: int, size: int | tuple[int, ...] | None = None, **options: Any) -> Any:
        tickets = high == len(cells().tickets) and size is not None
        drawn = self.drawn.integers(high, size=size, **options)
        return np.full_like(drawn, high - 1) if tickets else drawn


def test_the_tails_are_those_of_a_normal() -> None:
    cell, positions = rounded_noise._rest([InTails()], np.array([60]))  # type: ignore[list-item]
    points = (cell + positions * WORD) / 2**CELL_BITS
    assert (np.abs(points) >= REACH).all()
    assert 15 < (points < 0).sum() < 45
    assert kstest(norm.sf(np.abs(points)) / norm.sf(REACH), "uniform").pvalue > SURE
    with mpmath.workprec(100):
        for away in range(5):
            # the least bound that a tail's cell is drawn with
            bound = 2.0 ** -(away + 1) * TICKET / (2 << CELL_BITS)
            assert density(REACH + away) < bound


def test_the_bound_on_a_tail_is_halved_with_each_standard_deviation() -> None:
    for away, word in ((0, 6), (3, 7)):
        words = Words(word, *[1] * away, 0)
        cell, bound = rounded_noise._tail(words)  # type: ignore[arg-type]
        expected = ((REACH + away) << CELL_BITS) + 3
        assert cell == (expected if word == 6 else -1 - expected)
        assert bound == 2.0 ** -(away + 1) * TICKET / (2 << CELL_BITS)


def test_float64_is_off_by_less_than_it_is_taken_to_be() -> None:
    """Of heights of the density in its error beside the bits that aren't drawn, and of logarithms."""
    first, worst = generator(), 0.0
    furthest = REACH + 3 << CELL_BITS  # in the tails, too
    cell = first.integers(-furthest, furthest, size=1000)
    positions = first.integers(2**64, size=1000, dtype=np.uint64)
    computed = rounded_noise._density((cell + positions * WORD) / 2**CELL_BITS)
    with mpmath.workprec(200):
        for number, position, height in zip(cell.tolist(), positions.tolist(), computed, strict=True):
            for last in (0, 1):
                point = (number + mpmath.mpf(position + last) / 2**64) / 2**CELL_BITS
                worst = max(worst, abs(density(point) - height))
    assert worst < rounded_noise.HEIGHT_ERROR / 2
    worst = 0.0
    low, high = int(LOW / WORD), 2**64 - 1
    for least, most in ((low, low + 2**40), (low, 2**50), (2**50, 2**63), (2**63, high)):
        chosen = first.integers(least, most, size=200, dtype=np.uint64)
        with mpmath.workprec(200):
            for word in chosen.tolist():
                for last in (0, 1):
                    # of a uniform number with a bit less
                    half = -mpmath.log(mpmath.mpf((word >> 1) + last) / 2**63)
                    worst = max(worst, abs(half + np.log((word >> 1) * 2 * WORD)))
    assert worst < rounded_noise.UNIFORM_ERROR


def test_more_bits_are_drawn_until_they_decide() -> None:
    """Of a Laplace number between two integers, and of a point at the density, to their last bits."""
    scale = 3.7
    with mpmath.workprec(200):
        middle = mpmath.exp(-4.5 / mpmath.mpf(scale)) * 2**63
        word = int(mpmath.floor(middle))
        further = int((middle - word) * 2**64)
    # the larger the uniform number, the smaller the other
    for beyond, expected in ((1, 4), (-1, 5)):
        words = Words(2 * word, further + beyond)
        assert rounded_laplace(words, np.array([scale])).tolist() == [expected]  # type: ignore[arg-type]
        assert words.taken == 2
    # a point whose first 64 bits lie at the left end of cell 64, and whose height may be just that there
    with mpmath.workprec(250):
        share = density(1) / 2**26 * 2**64
        height = int(mpmath.floor(share))
        further = int((share - height) * 2**64)
    for beyond, expected in ((-(2**40), True), (2**40, False)):
        words = Words(0, further + beyond)
        drawn = rounded_noise._lies_under(words, 2**CELL_BITS, 0, height, 0.0, 2.0**26)  # type: ignore[arg-type]
        assert drawn == expected
        assert words.taken == 2


@pytest.mark.parametrize("bits", [0, 2])
def test_normal_integers_have_the_probabilities_of_scipy(bits: int) -> None:
    drawn, most = normals(generator(), 2_000_000, bits), 4 * 2**bits
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


@pytest.mark.parametrize("bits", [SHORT, SHORT + 1])
def test_fine_integers_are_normal_and_their_last_bits_even(bits: int) -> None:
    drawn = normals(generator(), 1_000_000, bits)
    assert kstest(drawn / 2**bits, norm.cdf).pvalue > SURE
    # of the two numbers that are halves of a word
    first, second = drawn.reshape(-1, 2).T
    for power in (1, 2):
        assert abs(np.corrcoef(first**power, second**power)[0, 1]) < 4 / len(first) ** 0.5
    large = rounded_laplace(generator(), np.full(200_000, 2.0**21))
    assert kstest(large / 2**21, laplace.cdf).pvalue > SURE
    for numbers in (drawn, large):
        counts = np.bincount(numbers.astype(np.int64) % 64, minlength=64)
        assert chisquare(counts).pvalue > SURE


def test_an_odd_number_of_them_and_many() -> None:
    assert len(normals(generator(), 7, 10)) == 7
    assert len(normals(generator(), 0, 10)) == 0
    assert len(set(normals(generator(), 140_001, 30).tolist())) > 138_000


def test_integers_too_large_for_float64_are_refused() -> None:
    with pytest.raises(ValueError, match=r"scale of 2\^49; allowed: up to 2\^48"):
        table(LONGEST + 1)


def test_secret_pieces_have_keys_of_their_own_and_are_the_same_with_any_number_of_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(streams, "PIECE", 100_000)
    monkeypatch.setattr(rounded_noise, "SHARED_BLOCK", 30_000)
    secret, before, size = streams.Streams("a", False, torch.device("cpu")), torch.get_num_threads(), 450_007
    secret.entropy = bytes(32)
    drawn = {}
    for threads in (1, 3):
        torch.set_num_threads(threads)
        drawn[threads] = secret.rounded_normal(0, size, 2)
    torch.set_num_threads(before)
    assert torch.equal(drawn[1], drawn[3])
    pieces = [piece.numpy() for piece in drawn[1].split(100_000)]
    assert [len(piece) for piece in pieces] == [100_000] * 4 + [50_007]
    for number, piece in enumerate(pieces):
        alone = normals(secret._generator(f"noise/{number}", 0), len(piece), 2)
        assert np.array_equal(piece, alone)
    correlations = np.corrcoef([piece[:50_000] for piece in pieces]) - np.eye(5)
    assert np.abs(correlations).max() < 5 / 50_000**0.5
    # seeded noise stays one stream
    seeded = streams.Streams("a", True, torch.device("cpu"), noise="grid")
    expected = normals(seeded._generator("noise", 0), size, 2)
    assert np.array_equal(seeded.rounded_normal(0, size, 2).numpy(), expected)


def test_a_generator_whose_tries_are_too_few_tries_again() -> None:
    """With tickets for the tails alone, few points are accepted; another generator's numbers don't move."""
    both = rounded_noise._rest([InTails(), generator(1)], np.array([60, 500]))  # type: ignore[list-item]
    alone = rounded_noise._rest([generator(1)], np.array([500]))
    for joint, expected in zip(both, alone, strict=True):
        assert len(joint) == 560
        assert np.array_equal(joint[60:], expected)
