"""Normal and Laplace numbers rounded to integers, with exactly the probabilities of rounded real numbers.

Most normal numbers are read from a table of 2^16 entries. An entry stands for a cell, an interval of a 64th
of a standard deviation. Random bits give the position in the cell. Each cell has as many entries as fit under
the density. The rest of the density, one number in 99, is sampled by rejection (von Neumann 1951): a random
point above a cell is accepted if it is under the density. float64 compares the point with the density. If
float64's error could change the result, interval arithmetic compares them, with enough random bits to decide.

A Laplace number is a function of a uniform real number (inversion) and a sign. 63 bits of the uniform number
and a bit for the sign are drawn. float64 computes the Laplace number at scale 1 with an error below
`UNIFORM_ERROR`, missing bits included. If all numbers within this error round to the same integer, it is the
result. Otherwise (once in 8 million numbers at a scale of 2^20), and always if the uniform number is below
`LOW`, interval arithmetic decides, with enough further bits.

So if the bits are random, the integers have exactly these probabilities, and no delta has to cover a
numerical error. The bits come from AES-128 in counter mode. They are as random as AES-128 is a random
permutation, except that blocks never repeat. This exception distinguishes n blocks from random blocks with
an advantage of n^2 / 2^129 (Bellare et al. 1997): 2^-85 for 2^24 normal numbers, which take 2^22 blocks.
Numbers of several keys (`Streams`) have a smaller advantage: the sum over keys of each one's.
"""

from collections.abc import Iterable, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
from mpmath.ctx_iv import MPIntervalContext
from mpmath.libmp import finf, to_int

# 2^CELL_BITS cells of a normal number per standard deviation, up to REACH standard deviations on both sides
CELL_BITS, REACH = 6, 6
INDEX_BITS = 16  # bits of an index of the table
# Largest log2 of the integers' scale, for words of 32 bits, random and returned, and for exact float64
SHORT, LONGEST = 21, 48
# Heights above a cell are in units: a height of one unit over the whole cell has probability 2^-32
UNIT_BITS = 32
ENTRY = 1 << UNIT_BITS - INDEX_BITS  # units of an entry of the table
TICKET = 1 << 10  # units of a ticket; a random ticket chooses the cell of a number of the rest
# Largest error of float64 in a difference of heights, in units: heights are below 2^25, and an exponential of
# -18 to 0 has a relative error below 2^-46; in the tails, heights are below 1
HEIGHT_ERROR = 2.0**-20
# numbers at once: few enough for a core's cache; threads draw more, because they wait for each other after
# every operation (for the interpreter's lock)
BLOCK, SHARED_BLOCK = 2**15, 2**18

# Largest error of Laplace numbers at scale 1 by float64 and missing bits, for uniform numbers above LOW
UNIFORM_ERROR, LOW = 2.0**-44, 2.0**-18
WORD = 2.0**-64

INTERVALS = MPIntervalContext()
INTERVALS.prec = 320  # bits; more are needed with a probability of 2^-200


class Cells(NamedTuple):
    """Normal density over the cells from -REACH to REACH; heights are in units as for `UNIT_BITS`."""

    table: np.ndarray  # (2 REACH 2^CELL_BITS,) height covered by the table, nowhere above the density
    rest: np.ndarray  # (2 REACH 2^CELL_BITS,) upper bound on the density above that height
    tickets: np.ndarray  # index of the cell of each ticket; the index after the last cell is for the tails


class NormalTable(NamedTuple):
    """Table of normal numbers. A word of random bits gives an entry's index, then a position in its cell."""

    # (2^INDEX_BITS,) start of each entry's cell in units of the fraction's last bit, plus half an integer,
    # minus the first word of the entry: the sum with a word, modulo the words' size, has the word's fraction
    numbers: np.ndarray
    entries: int  # number of entries for cells, which come first; all further entries are for the rest
    fraction_bits: int
    shift: int  # bits of a number below its integer part


@cache
def cells() -> Cells:
    """Cells of the normal density: `table` is rounded down, `rest` up, by more than float64's error."""
    edges = np.arange(-REACH << CELL_BITS, (REACH << CELL_BITS) + 1) / 2**CELL_BITS
    heights = _density(edges)
    lowest, highest = np.minimum(heights[:-1], heights[1:]), np.maximum(heights[:-1], heights[1:])
    table = lowest * (1 - 1e-12) // ENTRY * ENTRY
    tickets = np.ceil((highest * (1 + 1e-12) - table) / TICKET).astype(np.int64)
    return Cells(table, tickets * float(TICKET), np.repeat(np.arange(len(tickets) + 1), [*tickets, 1]))


@cache
def table(bits: int) -> NormalTable:
    """Table for integers at a scale of 2^bits.

    Args:
        bits: log2 of the scale.

    Returns:
        The table.

    Raises:
        ValueError: the integers are too large to be exact in float64.
    """
    if bits > LONGEST:
        raise ValueError(f"noise at a scale of 2^{bits}; allowed: up to 2^{LONGEST}")
    word = np.int32 if bits <= SHORT else np.int64
    fraction_bits = 8 * np.dtype(word).itemsize - INDEX_BITS
    shift = CELL_BITS + fraction_bits - bits
    entries = (cells().table // ENTRY).astype(np.int64)
    used = np.repeat(np.arange(len(entries)) - len(entries) // 2, entries)
    numbers: np.ndarray = (-np.arange(2**INDEX_BITS) << fraction_bits).astype(word)
    numbers[: len(used)] += ((used << fraction_bits) + (1 << shift - 1)).astype(word)
    return NormalTable(numbers, len(used), fraction_bits, shift)


def rounded_normal(generators: Iterable[np.random.Generator], noise: Sequence[np.ndarray], bits: int) -> None:
    """Draw integers: 2^bits times independent standard normals, rounded to the nearest.

    Args:
        generators: generator of random bits for each array.
        noise: arrays for the integers; of 4 bytes up to `SHORT`, 8 above, as in the table.
        bits: log2 of the scale.
    """
    numbers, entries, fraction_bits, shift = table(bits)
    signed, unsigned = numbers.dtype, np.dtype(f"u{numbers.itemsize}")
    at_once = BLOCK if len(noise) == 1 else SHARED_BLOCK
    indices, used, places = np.empty(at_once, np.int64), [], []
    for generator, integers in zip(generators, noise, strict=True):
        left = [np.empty(0, np.int64)]
        for start in range(0, len(integers), at_once):
            integer = integers[start : start + at_once]
            words = generator.integers(2**64, size=-(-integer.nbytes // 8), dtype=np.uint64)
            block = words.view(unsigned)[: len(integer)]
            index = indices[: len(block)]
            np.right_shift(block, unsigned.type(fraction_bits), out=index, casting="same_kind")
            # `wrap` saves a copy of `integer`; no index is out of range
            numbers.take(index, out=integer, mode="wrap")
            integer += block.view(signed)
            integer >>= shift
            left.append(np.flatnonzero(block >= unsigned.type(entries << fraction_bits)) + start)
        used.append(generator)
        places.append(np.concatenate(left))
    counts = np.array([*map(len, places)])
    cell, position = _rest(used, counts)
    fine = (cell << fraction_bits) + (position >> np.uint64(64 - fraction_bits)).view(np.int64)
    rest = np.split((fine + (1 << shift - 1)) >> shift, counts.cumsum()[:-1])
    for integers, at, exact in zip(noise, places, rest, strict=True):
        integers[at] = exact


def _density(points: np.ndarray) -> np.ndarray:
    """Height of the normal density at each of ``points``, in units as in `Cells`."""
    density: np.ndarray = np.exp(points * points * -0.5)
    density *= 2.0 ** (UNIT_BITS - CELL_BITS) / np.sqrt(2 * np.pi)
    return density


def _uniform(words: np.ndarray) -> np.ndarray:
    """Numbers in [0, 1] with the first 63 bits of ``words``, of which float64 takes signed ones faster."""
    return (words >> np.uint64(1)).view(np.int64) * (2 * WORD)


def _rest(generators: Sequence[np.random.Generator], counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Normal numbers of the rest (see the module), for each generator in turn as many as its count.

    Returns:
        Cells, where cell 0 begins at 0, and 64-bit positions.
    """
    covered, rest, tickets = cells()
    found = [[(np.empty(0, np.int64), np.empty(0, np.uint64))] for _ in generators]
    missing: list[int] = counts.tolist()
    while any(missing):
        tries = [(count > 0) * 32 + 7 * count // 4 for count in missing]
        draws = [*zip(generators, tries, strict=True)]
        which = tickets.take(np.concatenate([one.integers(len(tickets), size=size) for one, size in draws]))
        words = np.concatenate(
            [one.integers(2**64, size=(2, size), dtype=np.uint64) for one, size in draws], 1
        )
        (positions, heights), shares = words, _uniform(words)
        ends = np.cumsum(tries)
        tails = np.flatnonzero(which == len(rest))
        which[tails] = 0
        cell, floor, bound = which - len(rest) // 2, covered.take(which), rest.take(which)
        for at in tails:
            (cell[at], bound[at]), floor[at] = _tail(generators[int(ends.searchsorted(at, "right"))]), 0
        above = _density((cell + shares[0]) / 2**CELL_BITS)
        above -= floor + shares[1] * bound
        accepted = above > 0
        for at in np.flatnonzero(np.abs(above) < HEIGHT_ERROR):
            point = int(cell[at]), positions[at], heights[at], float(floor[at]), float(bound[at])
            accepted[at] = _lies_under(generators[int(ends.searchsorted(at, "right"))], *point)
        for place, (end, size) in enumerate(zip(ends, tries, strict=True)):
            some = end - size + np.flatnonzero(accepted[end - size : end])[: missing[place]]
            found[place].append((cell.take(some), positions.take(some)))
            missing[place] -= len(some)
    parts = [part for of_one in found for part in of_one]
    cell, position = (np.concatenate(each) for each in zip(*parts, strict=True))
    return cell, position


def _tail(generator: np.random.Generator) -> tuple[int, float]:
    """Random cell beyond `REACH`, with an upper bound on the density there.

    The bounds of all these cells have the sum `TICKET`. The first standard deviation beyond `REACH`, on both
    sides, has half of this sum, the second a quarter, and so on. The density falls faster.

    Returns:
        The cell, and the bound in the units of `Cells`.
    """
    place, deviations = int(generator.integers(2 << CELL_BITS)), 0
    while generator.integers(2):
        deviations += 1
    cell = (REACH + deviations << CELL_BITS) + (place >> 1)
    return (-1 - cell if place % 2 else cell), 2.0 ** -(deviations + 1) * TICKET / (2 << CELL_BITS)


def _lies_under(
    generator: np.random.Generator, cell: int, position: int, height: int, covered: float, rest: float
) -> bool:
    """Compare the height ``covered`` + u ``rest`` with the density at a point of a cell.

    ``height`` has the first 64 bits of the uniform number u, ``position`` those of the position in the cell.

    Returns:
        True if the density is larger.
    """
    prefixes, width = [int(position), int(height)], 64
    while True:
        offset, share = (INTERVALS.mpf([prefix, prefix + 1]) / 2**width for prefix in prefixes)
        point = (cell + offset) / 2**CELL_BITS
        scale = 2 ** (UNIT_BITS - CELL_BITS) / INTERVALS.sqrt(2 * INTERVALS.pi)
        is_under = scale * INTERVALS.exp(-point * point / 2) > covered + rest * share
        if is_under is not None:
            return bool(is_under)
        prefixes, width = _extended(generator, prefixes), width + 64


def _extended(generator: np.random.Generator, prefixes: Sequence[int]) -> list[int]:
    """Binary fractions ``prefixes``, each extended by 64 random bits."""
    words = generator.integers(2**64, size=len(prefixes), dtype=np.uint64)
    return [(prefix << 64) + int(word) for prefix, word in zip(prefixes, words, strict=True)]


def rounded_laplace(generator: np.random.Generator, scales: np.ndarray) -> np.ndarray:
    """Laplace numbers of scale 1 times ``scales``, rounded to integers; float64, shaped like ``scales``."""
    words = generator.integers(2**64, size=scales.shape, dtype=np.uint64)
    uniform = _uniform(words)
    real = scales * -np.log(np.maximum(uniform, WORD))
    noise = np.rint(real)
    ambiguous = (uniform < LOW) | (np.abs(real - noise) >= 0.5 - scales * UNIFORM_ERROR)
    for index in zip(*np.nonzero(ambiguous), strict=True):
        # the last bit is the sign, not a bit of the uniform number
        noise[index] = _rounded_exactly(generator, float(scales[index]), int(words[index]) >> 1)
    return np.where(words & np.uint64(1), -noise, noise)


def _rounded_exactly(generator: np.random.Generator, scale: float, word: int) -> int:
    """Integer nearest to -``scale`` log(u), for a uniform number u whose first 63 bits are ``word``."""
    width = 63
    while True:
        real = -scale * INTERVALS.log(INTERVALS.mpf([word, word + 1]) / 2**width)
        low, high = real.a._mpi_[0], real.b._mpi_[1]
        if high != finf and to_int(low, "n") == to_int(high, "n"):
            return int(to_int(low, "n"))
        (word,), width = _extended(generator, [word]), width + 64
