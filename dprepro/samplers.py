"""Samplers for a torch `DataLoader` with known privacy amplification."""

import os
import secrets
from collections.abc import Iterator

import numpy as np
from randomgen import AESCounter
from torch.utils.data import Sampler

from dprepro.checking import checked
from pipeline.errors import UserError
from pipeline.fields import Count
from pipeline.privacy.randomness import allocation


class BallsAndBinsSampler(Sampler[list[int]]):
    """Batches of an epoch by random allocation: each example is in ``participations`` random batches.

    Use it as `batch_sampler` of `torch.utils.data.DataLoader`. Every epoch has the same number of batches, of
    random sizes. With Opacus, use ``make_private(..., poisson_sampling=False)`` and
    `dprepro.epsilon(sampling="allocation")`; Opacus's ``get_epsilon`` doesn't know such batches.

    Make the sampler in the process that iterates over the loader. A copy in another process would draw the
    same batches, so it is refused. Worker processes of the `DataLoader` get no copy. In distributed training
    each process needs a sampler of its own, for a part of the examples that no other process has.

    Attributes:
        examples: N, number of examples of the data set.
        batches: t, number of batches of an epoch.
        participations: number of batches of an epoch that an example is in.
    """

    @checked
    def __init__(self, examples: Count, batches: Count, participations: Count = 1) -> None:
        """Draw the key of the sampler's random generator from the operating system.

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
        self._generator = np.random.Generator(AESCounter(key=secrets.randbits(128)))
        self._process = os.getpid()

    def __len__(self) -> int:
        """Number of batches of an epoch."""
        return self.batches

    def __iter__(self) -> Iterator[list[int]]:
        """Batches of a new epoch.

        Yields:
            Positions of a batch's examples in rising order; some batches may be empty.

        Raises:
            UserError: the sampler was made in another process, whose batches would come again.
        """
        if os.getpid() != self._process:
            raise UserError(
                "BallsAndBinsSampler: was made in another process, and a copy draws the same batches; "
                "needed: a sampler made in each process, for examples that no other process has"
            )
        chosen = allocation(self._generator, self.examples, self.batches, self.participations)
        for batch in range(self.batches):
            yield np.flatnonzero((chosen == batch).any(1)).tolist()
