"""Streams of noise and samples: where their secret comes from, and that all of it is behind every number."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest.mock import patch

import numpy as np
import pytest
import torch

from pipeline.privacy.randomness import Streams

CPU = torch.device("cpu")
BYTES = 32  # of the operating system's random numbers that a run must ask for, at least
DRAWS: dict[str, Callable[[Streams, int], object]] = {
    "poisson": lambda streams, step: streams.poisson(step, 1000, 0.5),
    "fixed": lambda streams, step: streams.fixed(step, 1000, 50),
    "replaced": lambda streams, step: streams.replaced(step, 1000, 50),
    "shuffled": lambda streams, step: streams.shuffled(step, 1000, 1000),
    "normal": lambda streams, step: streams.normal(step, 50),
    "laplace": lambda streams, step: streams.laplace(step, 50, "inputs"),
    "uniform": lambda streams, step: streams.uniform(step, 50, "augment"),
}


def streams() -> Streams:
    return Streams(("a",), reproducible=False, device=CPU)


@contextmanager
def operating_system(answer: Callable[[int], bytes]) -> Iterator[list[int]]:
    """``answer`` in place of the system's random bytes; yields how many were asked for."""
    asked: list[int] = []

    def urandom(count: int) -> bytes:
        asked.append(count)
        return answer(count)

    with patch("os.urandom", urandom), patch("random._urandom", urandom):
        yield asked


def test_256_bits_are_asked_of_the_operating_system() -> None:
    with operating_system(os.urandom) as asked:
        streams()
    assert sum(asked) >= BYTES


def test_each_of_them_is_behind_the_noise_and_nothing_else_is() -> None:
    noise = []
    for flipped in range(-1, 8 * BYTES):
        bits = (1 << flipped if flipped >= 0 else 0).to_bytes(BYTES, "big")
        with operating_system(lambda count, bits=bits: bits[:count].ljust(count, b"\0")):
            noise.append(tuple(streams().normal(0, 4)[0].tolist()))
    assert len(set(noise)) == 1 + 8 * BYTES
    with operating_system(bytes):
        assert tuple(streams().normal(0, 4)[0].tolist()) == noise[0]


def test_the_clock_is_not_behind_them() -> None:
    with patch("time.time", lambda: 0.0), patch("time.time_ns", lambda: 0):
        assert not torch.equal(streams().normal(0, 50), streams().normal(0, 50))


def test_workers_of_one_process_have_entropy_of_their_own() -> None:
    streams()  # before they part
    drawn = []
    for _ in range(3):
        reading, writing = os.pipe()
        if (child := os.fork()) == 0:
            try:
                os.write(writing, streams()._normal(0, 4, "noise").numpy().tobytes())
            finally:
                os._exit(0)
        os.close(writing)
        os.waitpid(child, 0)
        with os.fdopen(reading, "rb") as pipe:
            drawn.append(pipe.read())
    assert len(drawn[0]) == 16
    assert len(set(drawn)) == 3


def test_every_generator_is_seeded_with_256_bits() -> None:
    for name, draw in DRAWS.items():
        seeds: list[int] = []
        real = np.random.default_rng

        def noted(seed: int, seeds: list[int] = seeds, real: Callable = real) -> np.random.Generator:
            seeds.append(seed)
            return real(seed)

        with patch.object(np.random, "default_rng", noted):
            source = streams()
            for step in range(40):
                draw(source, step)
        assert len(set(seeds)) >= 40, name
        for half in (seeds, [int(f"{seed:0256b}"[::-1], 2) for seed in seeds]):
            assert max(half).bit_length() > 250, name  # but once in 2^240 times


def test_numbers_drawn_ahead_go_with_the_entropy() -> None:
    resumed, other = streams(), streams()
    for step in range(3):
        resumed.normal(step, 50)
    for _, early in resumed._ahead._next.values():
        early.result()  # the next step's are there
    ahead = streams()
    ahead.entropy = resumed.entropy
    old = ahead.normal(3, 50)
    resumed.entropy = other.entropy
    found = resumed.normal(3, 50)
    assert torch.equal(found, other.normal(3, 50))
    assert not torch.equal(found, old)


@pytest.mark.parametrize("name", DRAWS)
def test_every_stream_is_secret(name: str) -> None:
    first, second = (DRAWS[name](streams(), 0) for _ in range(2))
    same = [np.array_equal(np.asarray(a), np.asarray(b)) for a, b in zip(first, second, strict=True)]
    assert not any(same)
