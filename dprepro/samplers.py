"""Batches of a torch `DataLoader` that an accountant knows."""

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
    """Batches of an epoch by random allocation: each example is in one of them, drawn for it alone.

    A `batch_sampler` of `torch.utils.data.DataLoader`. An epoch has as many batches each time, and batches
    have random sizes. With Opacus it goes with ``make_private(..., poisson_sampling=False)``, whose
    ``get_epsilon`` doesn't know such batches: `dprepro.epsilon(sampling="allocation")` does.

    Attributes:
        examples: N, examples of the data set.
        batches: t, batches of an epoch.
        participations: batches of an epoch that an example is in.
    """

    @checked
    def __init__(self, examples: Count, batches: Count, participations: Count = 1) -> None:
        """Draw the sampler's key from the operating system.

        Args:
            examples: N, examples of the data set.
            batches: t, batches of an epoch; about N / t examples each.
            participations: batches of an epoch that an example is in, at most t.

        Raises:
            UserError: a number is not allowed.
        """
        if participations > batches:
            raise UserError(
                f"participations: {participations}; allowed: 1 to {batches}, the batches of an epoch"
            )
        self.examples, self.batches, self.participations = examples, batches, participations
        self._generator = np.random.Generator(AESCounter(key=secrets.randbits(128)))

    def __len__(self) -> int:
        """Batches of an epoch."""
        return self.batches

    def __iter__(self) -> Iterator[list[int]]:
        """Batches of a new epoch, as positions of examples in rising order; one may be empty."""
        chosen = allocation(self._generator, self.examples, self.batches, self.participations)
        for batch in range(self.batches):
            yield np.flatnonzero((chosen == batch).any(1)).tolist()
