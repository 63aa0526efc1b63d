"""Streams of noise and samples: where their secret comes from, and that all of it is behind every number."""

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from pipeline.privacy import randomness
from pipeline.privacy.randomness import Streams

CPU = torch.device("cpu")
BYTES = 32  # of the operating system's random numbers that a run must ask for, at least
DRAWS: dict[str, Callable[[Streams, int], Any]] = {
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


def _padded(bits: bytes, count: int) -> bytes:
    return bits[:count].ljust(count, b"\0")


def test_each_of_them_is_behind_the_noise_and_nothing_else_is() -> None:
    noise = []
    for flipped in range(-1, 8 * BYTES):
        bits = (1 << flipped if flipped >= 0 else 0).to_bytes(BYTES, "big")
        with operating_system(partial(_padded, bits)):
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


@pytest.mark.parametrize("name", DRAWS)
def test_every_generator_is_keyed_with_256_bits(name: str) -> None:
    seeds: list[int] = []
    numpys, aes = np.random.default_rng, randomness.AESCounter

    def seeded(seed: int) -> np.random.Generator:
        seeds.append(seed)
        return numpys(seed)

    def keyed(counter: int, key: int) -> np.random.BitGenerator:
        seeds.append((counter << 128) + key)
        return aes(counter=counter, key=key)

    with patch.object(np.random, "default_rng", seeded), patch.object(randomness, "AESCounter", keyed):
        source = streams()
        for step in range(40):
            DRAWS[name](source, step)
    assert len(set(seeds)) >= 40
    for numbers in (seeds, [int(f"{seed:0256b}"[::-1], 2) for seed in seeds]):
        assert max(numbers).bit_length() > 250  # but once in 2^240 times


def test_secret_numbers_are_those_of_aes() -> None:
    """By AES-128 itself, block by block: what is drawn is a counter encrypted with the key."""
    source = streams()
    seed = source._seed("a", "noise", 0)
    key, counter = (seed % 2**128).to_bytes(16, "little"), seed >> 128
    encrypt = Cipher(algorithms.AES(key), modes.ECB()).encryptor()
    blocks = [encrypt.update(((counter + at) % 2**128).to_bytes(16, "little")) for at in range(4)]
    raw = source._generator("a", "noise", 0).bit_generator.random_raw(8)
    assert raw.astype("<u8").tobytes() == b"".join(blocks)


def test_seeded_numbers_are_what_they_always_were() -> None:
    seeded = Streams(("a",), reproducible=True, device=CPU)
    digest = hashlib.sha256(b"reproducible" + b"a/noise/3").digest()
    generator = np.random.default_rng(int.from_bytes(digest, "big"))
    assert seeded.normal(3, 9)[0].tolist() == generator.standard_normal(9, dtype=np.float32).tolist()


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
