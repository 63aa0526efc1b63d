"""Samplers for a torch `DataLoader` with known privacy amplification."""

import os
import secrets
from collections.abc import Iterator

import numpy as np
from randomgen import AESCounter
from torch.utils.data import Sampler

from dprepro.checking import checked
from dprepro.errors import UserError
from dprepro.fields import Count
from dprepro.noise.streams import allocation, poisson_sample


class _SecretSampler(Sampler[list[int]]):
    """Sampler for the process that made it, with a key of the operating system for each pass."""

    def __init__(self) -> None:
        self._process = os.getpid()

    def _new_generator(self) -> np.random.Generator:
        if os.getpid() != self._process:
            raise UserError(
                f"{type(self).__name__}: was made in another process; "
                "needed: a sampler made in each process, for examples that no other process has"
            )
        return np.random.Generator(AESCounter(key=secrets.randbits(128)))


class PoissonSampler(_SecretSampler):
    """Poisson samples: each example is in a batch with the same probability, independently of all others.

    Use it as `sampler` of `torch.utils.data.DataLoader` with ``batch_size=None``, if the data set takes a
    list of positions, as `TensorDataset` does; an empty sample is then a batch of length 0. For a data set
    that takes one position, use it as `batch_sampler`, with a ``collate_fn`` that makes such a batch of an
    empty list. Or iterate over it, and index the tensors of the data. The epsilon is that of
    `dprepro.epsilon` with the same ``examples`` and ``batch``, for the steps of all passes. Processes are as
    in `BallsAndBinsSampler`.
    """

    @checked
    def __init__(self, examples: Count, batch: Count, steps: Count) -> None:
        """Set the sampler up; each pass draws a new key from the operating system.

        Args:
            examples: N, number of examples of the data set.
            batch: expected size of a sample, at most N; the probability of an example is ``batch`` / N.
            steps: number of samples in one pass through the sampler.

        Raises:
            UserError: a number is not allowed.
        """
        if batch > examples:
            raise UserError(f"batch: {batch}; allowed: 1 to {examples}, the examples")
        self.examples, self.batch, self.steps = examples, batch, steps
        super().__init__()

    def __len__(self) -> int:
        """Number of samples in one pass."""
        return self.steps

    def __iter__(self) -> Iterator[list[int]]:
        """New samples.

        Yields:
            Positions of a sample's examples in rising order; some samples may be empty.

        Raises:
            UserError: the sampler was made in another process.
        """
        generator = self._new_generator()
        for _ in range(self.steps):
            sample = poisson_sample(generator, self.examples, self.batch / self.examples)
            yield np.sort(sample).tolist()


class BallsAndBinsSampler(_SecretSampler):
    """Batches of an epoch by random allocation: each example is in ``participations`` random batches.

    Use it as `batch_sampler` of `torch.utils.data.DataLoader`. Every epoch has the same number of batches, of
    random sizes. With Opacus, use ``make_private(..., poisson_sampling=False)`` and
    `dprepro.epsilon(sampling="allocation")`; Opacus's ``get_epsilon`` doesn't know such batches.

    Make the sampler in the process that iterates over the loader. A copy in another process is refused.
    Worker processes of the `DataLoader` get no copy. In distributed training each process needs a sampler of
    its own, for a part of the examples that no other process has.
    """

    @checked
    def __init__(self, examples: Count, batches: Count, participations: Count = 1) -> None:
        """Set the sampler up; each pass draws a new key from the operating system.

        Args:
            examples: N, number of examples of the data set.
            batches: t, number of batches of an epoch; each has about ``participations`` N / t examples.
            participations: number of batches of an epoch that an example is in, at most t.

        Raises:
            UserError: a number is not allowed.
        """
        if participations > batches:
            raise UserError(
                f"participations: {participations}; allowed: 1 to {batches}, the batches of an epoch"
            )
        self.examples, self.batches, self.participations = examples, batches, participations
        super().__init__()

    def __len__(self) -> int:
        """Number of batches of an epoch."""
        return self.batches

    def __iter__(self) -> Iterator[list[int]]:
        """Batches of a new epoch.

        Yields:
            Positions of a batch's examples in rising order; some batches may be empty.

        Raises:
            UserError: the sampler was made in another process.
        """
        chosen = allocation(self._new_generator(), self.examples, self.batches, self.participations)
        for batch in range(self.batches):
            yield np.flatnonzero((chosen == batch).any(1)).tolist()
