"""Random streams of a run: samples of the steps, and noise.

Samples and noise must be secret for a guarantee to hold: known noise can be subtracted, and amplification by
subsampling needs unknown samples. So a run draws 256 bits of entropy from the operating system, keeps them in
memory only, and derives every stream from them. A resumed run draws new entropy. If a run draws its noise
only once, its checkpoint keeps the entropy until training ends. With the setting ``reproducible`` the entropy
is a constant: the streams repeat, and no guarantee holds.

Samples and noise come from AES-128 in counter mode. If no example contributes to a coordinate, a release
reveals the coordinate's noise, and all other numbers must stay unpredictable. Secret noise consists of
integers (`dprepro.noise.rounded_noise`). The CPU draws them for every device, because Philox, CUDA's
generator, is not cryptographic. Seeded streams have float32 numbers, from PCG64 on a CPU and from Philox on a
GPU. From a float32 sum the value without noise can be recovered (Mironov 2012).
"""

import hashlib
import os
import secrets
from collections.abc import Callable, Hashable, Iterator, Sized
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache, partial
from multiprocessing import parent_process

import numpy as np
import torch
from randomgen import AESCounter
from torch import Tensor

from dprepro.errors import UserError
from dprepro.fields import Noise
from dprepro.noise.rounded_noise import rounded_laplace, rounded_normal, table

PIECE = 2**19  # secret normal numbers that a thread draws with a key of their own
BLOCK = 2**15  # Laplace numbers at once, which fit into a core's cache


class Streams:
    """Random streams of one training, for the process that made them; seeded ones depend on its name only."""

    def __init__(self, name: str, reproducible: bool, device: torch.device, noise: Noise | None = None):
        """Set the streams up for the training ``name``, such as 'epsilon=3/seed=0'.

        The default of ``noise`` is 'float32' for seeded (``reproducible``) streams, and 'grid' otherwise.
        """
        self.name = name
        self.device = device
        self.reproducible = reproducible
        self.noise: Noise = noise or ("float32" if reproducible else "grid")
        self.entropy = b"reproducible" if reproducible else secrets.token_bytes(32)
        self._order: tuple[int, Tensor] | None = None  # epoch, and (N,) order of its examples
        self._allocation: tuple[int, np.ndarray] | None = None  # epoch and allocation
        self._prefetcher = Prefetcher()
        self._released: int | None = None  # last step whose noise is in a release
        self._process = os.getpid()

    def release_once(self, step: int) -> None:
        """Record that a release uses a step's noise: two releases with it would have a noiseless difference.

        Raises:
            ValueError: an earlier release used the noise of this step or of a later step.
        """
        if self._released is not None and step <= self._released:
            raise ValueError(
                f"two releases with the noise of step {step}, or one after step {self._released}; allowed: "
                "one a step, in rising order"
            )
        self._released = step

    def _seed(self, purpose: str, step: int) -> int:
        if not self.reproducible and os.getpid() != self._process:
            raise UserError("Streams: made in another process, which draws the same noise; needed: new ones")
        text = f"{self.name}/{purpose}/{step}".encode()
        return int.from_bytes(hashlib.sha256(self.entropy + text).digest(), "big")

    def _generator(self, purpose: str, step: int) -> np.random.Generator:
        """Generator of a step's numbers."""
        seed = self._seed(purpose, step)
        if self.reproducible:
            return np.random.default_rng(seed)
        return np.random.Generator(AESCounter(counter=seed >> 128, key=seed % 2**128))

    def poisson(self, step: int, examples: int, rate: float) -> np.ndarray:
        """Poisson sample of a step: each example is in it with probability ``rate``.

        With grid noise the sample is sorted, so that an added or removed example changes neither the order
        of the other examples nor the rounding of their sum. With float32 noise it is not sorted, as in
        earlier versions.

        Args:
            step: step of the training.
            examples: N.
            rate: probability of each example.

        Returns:
            Indices of the sample.
        """
        sample = poisson_sample(self._generator("sample", step), examples, rate)
        return sample if self.noise == "float32" else np.sort(sample)

    def fixed(self, step: int, examples: int, batch: int) -> Tensor:
        """(batch,) indices of different examples in random order, drawn anew for each step."""
        chosen = self._generator("sample", step).choice(examples, batch, replace=False)
        return torch.from_numpy(chosen).to(self.device)

    def replaced(self, step: int, examples: int, batch: int) -> Tensor:
        """(batch,) indices, drawn independently; an example may occur several times."""
        chosen = self._generator("sample", step).integers(examples, size=batch)
        return torch.from_numpy(chosen).to(self.device)

    def shuffled(self, step: int, examples: int, batch: int) -> Tensor:
        """Batch of a step: the next part of the epoch's random order of the examples.

        The last examples of an order are left out if they are too few for a batch.

        Args:
            step: step of the training.
            examples: N.
            batch: examples of a step.

        Returns:
            (batch,) indices.
        """
        epoch, position = divmod(step, examples // batch)
        if self._order is None or self._order[0] != epoch:
            order = self._generator("order", epoch).permutation(examples)
            self._order = (epoch, torch.from_numpy(order).to(self.device))
        return self._order[1][position * batch : (position + 1) * batch]

    def allocated(self, step: int, examples: int, batches: int, participations: int) -> np.ndarray:
        """Indices of a step's batch, in rising order; `allocation` draws the batches of an epoch."""
        epoch, position = divmod(step, batches)
        if self._allocation is None or self._allocation[0] != epoch:
            generator = self._generator("allocation", epoch)
            self._allocation = (epoch, allocation(generator, examples, batches, participations))
        return np.flatnonzero((self._allocation[1] == position).any(1))

    def rounded_normal(self, step: int, size: int, bits: int) -> Tensor:
        """(size,) integers: standard normals times 2^bits, rounded; of 4 bytes if `SHORT` allows."""
        kind = (self.entropy, size, bits)
        noise = self._prefetcher.draw(kind, step, partial(self._rounded_normal, size=size, bits=bits))
        return noise.to(self.device)

    def _rounded_normal(self, step: int, size: int, bits: int) -> Tensor:
        """`rounded_normal`; all threads draw secret numbers, in pieces with AES keys of their own."""
        noise = np.empty(size, table(bits).numbers.dtype)
        if self.reproducible or size <= PIECE:
            rounded_normal([self._generator("noise", step)], [noise], bits)
            return torch.from_numpy(noise)
        pieces, count = np.split(noise, range(PIECE, size, PIECE)), torch.get_num_threads()
        # threads draw several at once, because then they wait less for each other
        at_once = min(16, -(-len(pieces) // count)) if count > 1 else 1
        firsts = iter(range(0, len(pieces), at_once))  # the threads share it

        def draw() -> None:
            for first in firsts:
                some = range(first, min(first + at_once, len(pieces)))
                generators = (self._generator(f"noise/{piece}", step) for piece in some)
                rounded_normal(generators, pieces[some.start : some.stop], bits)

        # the prefetcher's thread has one
        others = [_threads(os.getpid()).submit(draw) for _ in range(count - 1)]
        draw()
        for other in others:
            other.result()
        return torch.from_numpy(noise)

    def rounded_laplace(
        self, step: int, count: int, scales: np.ndarray, purpose: str
    ) -> Iterator[tuple[slice, np.ndarray]]:
        """Laplace numbers of scale 1 times ``scales``, rounded to integers in float64.

        Args:
            step: step of the training.
            count: number of rows of d numbers.
            scales: (d,) scale of each column.
            purpose: name of the stream.

        Yields:
            For each block: slice of rows, and their (n, d) integers.
        """
        rows, generator = max(1, BLOCK // len(scales)), self._generator(purpose, step)
        for start in range(0, count, rows):
            block = np.broadcast_to(scales, (min(rows, count - start), len(scales)))
            yield slice(start, start + len(block)), rounded_laplace(generator, block)

    def normal(self, step: int, size: int, purpose: str = "noise") -> Tensor:
        """(size,) independent float32 standard normals; each purpose has its own stream."""
        if self.device.type == "cpu":
            # the key includes the entropy, because a resumed run replaces it
            kind = (self.entropy, size, purpose)
            return self._prefetcher.draw(kind, step, partial(self._normal, size=size, purpose=purpose))
        generator = torch.Generator(self.device).manual_seed(self._seed(purpose, step) % 2**63)
        return torch.empty(size, dtype=torch.float32, device=self.device).normal_(generator=generator)

    def _normal(self, step: int, size: int, purpose: str) -> Tensor:
        """`normal` on a CPU, by numpy, because torch's CPU generator uses only 32 bits of a seed."""
        generator = self._generator(purpose, step)
        return torch.from_numpy(generator.standard_normal(size, dtype=np.float32))

    def laplace(self, step: int, size: int, purpose: str) -> Tensor:
        """(size,) independent float32 Laplace numbers of scale 1, as differences of exponential numbers."""
        # the CPU draws them, so that a training resumed on another device continues with the same numbers
        generator = np.random.default_rng(self._seed(purpose, step))
        noise = generator.standard_exponential(size, dtype=np.float32)
        noise -= generator.standard_exponential(size, dtype=np.float32)
        return torch.from_numpy(noise).to(self.device)

    def uniform(self, step: int, size: int, purpose: str) -> Tensor:
        """(size,) independent numbers in [0, 1), in float32."""
        return torch.from_numpy(self.uniform_values(step, size, purpose)).to(self.device)

    def uniform_values(self, step: int, size: int, purpose: str) -> np.ndarray:
        """Numbers of `uniform` as an array on the CPU, without waiting for a GPU."""
        numbers: np.ndarray = self._generator(purpose, step).random(size, dtype=np.float32)
        return numbers


def poisson_sample(generator: np.random.Generator, examples: int, rate: float) -> np.ndarray:
    """Indices of a Poisson sample of N ``examples`` with probability ``rate`` each, not in order."""
    # a binomial count, then a random set of this size: the same distribution
    count = generator.binomial(examples, rate)
    return generator.choice(examples, count, replace=False, shuffle=False)


def allocation(
    generator: np.random.Generator, examples: int, batches: int, participations: int
) -> np.ndarray:
    """Random allocation of examples to batches of an epoch.

    Floyd's algorithm: each draw has one more batch to choose from than the draw before. If an example gets a
    batch that it already has, it gets this additional batch instead.

    Args:
        generator: generator of random numbers.
        examples: N.
        batches: batches of an epoch.
        participations: k, batches of each example.

    Returns:
        (N, k) different batches of each example, uniform and independent of other examples' batches.
    """
    chosen = np.empty((examples, participations), dtype=np.int64)
    for column, newest in enumerate(range(batches - participations, batches)):
        drawn = generator.integers(newest + 1, size=examples)
        taken = (chosen[:, :column] == drawn[:, None]).any(1)
        chosen[:, column] = np.where(taken, newest, drawn)
    return chosen


class Prefetcher:
    """Thread that draws the numbers of the next step during this step; the numbers stay the same.

    If torch's threads use all cores, each step draws its numbers itself: another thread would delay torch's.
    So it is in the processes of `pipeline.training.side_by_side`, which use all cores together.
    """

    def __init__(self) -> None:
        """Start without a thread; it is needed only for consecutive steps."""
        affinity: Callable[[int], Sized] | None = getattr(os, "sched_getaffinity", None)  # absent on macOS
        cores = len(affinity(0)) if affinity else os.cpu_count() or 1
        self._has_idle_core = parent_process() is None and cores > torch.get_num_threads()
        self._next: dict[Hashable, tuple[int, Future[Tensor]]] = {}
        self._last: dict[Hashable, int] = {}
        self._thread: ThreadPoolExecutor | None = None

    def draw(self, kind: Hashable, step: int, draw: Callable[[int], Tensor]) -> Tensor:
        """Result of ``draw(step)``; calls with the same ``kind`` must differ only in their step."""
        early_step, future = self._next.pop(kind, (None, None))
        numbers = future.result() if future is not None and early_step == step else draw(step)
        if self._has_idle_core and self._last.get(kind) == step - 1:
            if self._thread is None:
                self._thread = _undivided_thread()
            self._next[kind] = step + 1, self._thread.submit(draw, step + 1)
        self._last[kind] = step
        return numbers


@lru_cache(maxsize=1)
def _threads(process: int) -> ThreadPoolExecutor:
    """Threads that draw noise for a ``process``; they stay, as a start takes a twentieth of the time."""
    return ThreadPoolExecutor(thread_name_prefix="noise")


def _undivided_thread() -> ThreadPoolExecutor:
    """Thread whose operations torch and MKL don't divide among further threads.

    Otherwise OpenMP would have more threads than cores, and would let all threads sleep after each operation.
    With two threads a step would take up to twice as long.

    Returns:
        A pool with the thread.
    """
    executor, threads = ThreadPoolExecutor(1, "draws"), torch.get_num_threads()
    # without a first call, the thread would use the process's number of threads at its first operation
    executor.submit(torch.get_num_threads).result()
    executor.submit(torch.set_num_threads, 1).result()
    torch.set_num_threads(threads)  # for this thread and later ones
    return executor


def initial_seed(seed: int) -> int:
    """Seed of a training's initial weights, which are public and the same at every level."""
    return int.from_bytes(hashlib.sha256(f"initial/{seed}".encode()).digest()[:8], "big") % 2**63
