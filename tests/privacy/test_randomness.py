"""Streams of noise and samples: where their secret comes from, and that all of it is behind every number."""

import hashlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from dprepro.errors import UserError
from dprepro.noise import streams as randomness
from dprepro.noise.streams import Streams

CPU = torch.device("cpu")
BYTES = 32  # of the operating system's random numbers that a run must ask for, at least
SCALES = np.full(5, 2.0**20)
DRAWS: dict[str, Callable[[Streams, int], Any]] = {
    "poisson": lambda streams, step: streams.poisson(step, 1000, 0.5),
    "fixed": lambda streams, step: streams.fixed(step, 1000, 50),
    "replaced": lambda streams, step: streams.replaced(step, 1000, 50),
    "shuffled": lambda streams, step: streams.shuffled(step, 1000, 1000),
    "rounded_normal": lambda streams, step: streams.rounded_normal(step, 50, 20),
    "rounded_laplace": lambda streams, step: next(streams.rounded_laplace(step, 9, SCALES, "inputs"))[1],
    "normal": lambda streams, step: streams.normal(step, 50),
    "laplace": lambda streams, step: streams.laplace(step, 50, "inputs"),
    "uniform": lambda streams, step: streams.uniform(step, 50, "augment"),
}


def streams() -> Streams:
    return Streams("a", reproducible=False, device=CPU)


def drawn(source: Streams, step: int = 0) -> list[float]:
    """Of the noise that protects."""
    numbers: list[float] = source.rounded_normal(step, 50, 30).tolist()
    return numbers


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
            noise.append(tuple(drawn(streams())))
    assert len(set(noise)) == 1 + 8 * BYTES
    with operating_system(bytes):
        assert tuple(drawn(streams())) == noise[0]


def test_the_clock_is_not_behind_them() -> None:
    with patch("time.time", lambda: 0.0), patch("time.time_ns", lambda: 0):
        assert drawn(streams()) != drawn(streams())


def test_workers_of_one_process_have_entropy_and_threads_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(randomness, "PIECE", 300)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    before = streams()  # before they part; a worker that used them would repeat their noise
    before._rounded_normal(0, 1000, 20)
    time.sleep(0.1)  # a thread is idle, and a copy of the process doesn't have it
    numbers = []
    for _ in range(3):
        reading, writing = os.pipe()
        if (child := os.fork()) == 0:
            signal.alarm(20)  # threads of the parent would never draw
            try:
                own = streams()._rounded_normal(0, 1000, 20)
                with pytest.raises(UserError, match="made in another process"):
                    before._rounded_normal(0, 1000, 20)
                os.write(writing, own.numpy().tobytes())
            finally:
                os._exit(0)
        os.close(writing)
        os.waitpid(child, 0)
        with os.fdopen(reading, "rb") as pipe:
            numbers.append(pipe.read())
    assert len(numbers[0]) == 4000
    assert len(set(numbers)) == 3


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
    seed = source._seed("noise", 0)
    key, counter = (seed % 2**128).to_bytes(16, "little"), seed >> 128
    encrypt = Cipher(algorithms.AES(key), modes.ECB()).encryptor()
    blocks = [encrypt.update(((counter + at) % 2**128).to_bytes(16, "little")) for at in range(4)]
    raw = source._generator("noise", 0).bit_generator.random_raw(8)
    assert raw.astype("<u8").tobytes() == b"".join(blocks)


def test_seeded_numbers_are_what_they_always_were() -> None:
    seeded = Streams("a", reproducible=True, device=CPU)
    digest = hashlib.sha256(b"reproducible" + b"a/noise/3").digest()
    generator = np.random.default_rng(int.from_bytes(digest, "big"))
    assert seeded.normal(3, 9).tolist() == generator.standard_normal(9, dtype=np.float32).tolist()


def test_numbers_drawn_ahead_go_with_the_entropy() -> None:
    resumed, other = streams(), streams()
    resumed._prefetcher._has_idle_core = True  # on any machine
    for step in range(3):
        drawn(resumed, step)
    for _, early in resumed._prefetcher._next.values():
        early.result()  # the next step's are there
    assert resumed._prefetcher._next
    ahead = streams()
    ahead.entropy = resumed.entropy
    old = drawn(ahead, 3)
    resumed.entropy = other.entropy
    assert drawn(resumed, 3) == drawn(other, 3) != old


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="NO /proc: threads can't be counted")
@pytest.mark.parametrize(("cores", "more"), [(3, "1"), (2, "0")])
def test_numbers_drawn_ahead_take_no_thread_from_a_step(cores: int, more: str) -> None:
    """In a process of its own: with further threads all of them would sleep after each operation."""
    script = f"""
import os, torch
os.sched_getaffinity = lambda process: range({cores})
from dprepro.noise.streams import Streams
torch.set_num_threads(2)
torch.randn(10**6).exp()  # the step's own threads are there
before = len(os.listdir("/proc/self/task"))
streams = Streams("a", reproducible=False, device=torch.device("cpu"))
for step in range(4):
    streams.rounded_normal(step, 10**5, 20)
print(len(os.listdir("/proc/self/task")) - before, torch.get_num_threads())
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [more, "2"]


@pytest.mark.parametrize("name", DRAWS)
def test_every_stream_is_secret(name: str) -> None:
    first, second = (np.asarray(DRAWS[name](streams(), 0)) for _ in range(2))
    assert not np.array_equal(first, second)


def test_seeded_noise_is_float32_and_secret_noise_on_a_grid() -> None:
    assert streams().noise == "grid"
    assert Streams("a", reproducible=True, device=CPU).noise == "float32"


def assert_independent(chosen: np.ndarray, rate: float, most: float) -> None:
    """Each example is in as often as its rate says, and so are pairs of neighbours and of repetitions."""
    for within, chance in (
        (chosen, rate),
        (chosen[..., 1:] * chosen[..., :-1], rate**2),
        (chosen[1:] * chosen[:-1], rate**2),
    ):
        errors = (within.mean(0) - chance) / (chance * (1 - chance) / len(within)) ** 0.5
        assert np.abs(errors).max() < most


def test_secret_samples_are_poisson_samples() -> None:
    """Sizes, and how often each example and each pair of neighbours is in, as independent coins have them.

    Samples are in rising order, so an added example moves no other example. An order that depends on the
    number of examples would show this number in the rounding of a sum.
    """
    examples, rate, steps = 60, 0.3, 3000
    with operating_system(lambda count: bytes(range(count))):
        source = streams()
    samples = [source.poisson(step, examples, rate) for step in range(steps)]
    chosen = np.zeros((steps, examples))
    for step, sample in enumerate(samples):
        assert (np.diff(sample) > 0).all()
        chosen[step, sample] = 1
    variance = examples * rate * (1 - rate)
    assert chosen.sum(1).mean() == pytest.approx(examples * rate, abs=4 * (variance / steps) ** 0.5)
    assert chosen.sum(1).var() == pytest.approx(variance, rel=4 * (2 / steps) ** 0.5)
    assert_independent(chosen, rate, 4.5)


@pytest.mark.parametrize("participations", [1, 2])
def test_secret_batches_are_random_allocations(participations: int) -> None:
    """Examples are in so many batches of an epoch; sizes, pairs and epochs are those of independent draws."""
    examples, batches, epochs = 60, 5, 1500
    with operating_system(lambda count: bytes(range(count))):
        source = streams()
    chosen = np.zeros((epochs, batches, examples))
    for step in range(epochs * batches):
        sample = source.allocated(step, examples, batches, participations)
        assert (np.diff(sample) > 0).all()
        chosen[step // batches, step % batches, sample] = 1
    assert (chosen.sum(1) == participations).all()
    rate = participations / batches
    assert chosen.sum(2).var() == pytest.approx(examples * rate * (1 - rate), rel=0.1)
    assert_independent(chosen, rate, 4.8)
