"""Samplers for a torch `DataLoader` with known privacy amplification, and the loader."""

import os
import secrets
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any

import numpy as np
from pydantic import Field
from randomgen import AESCounter
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, Sampler, default_collate

from dprepro.checking import checked
from dprepro.errors import UserError
from dprepro.fields import Count
from dprepro.noise.streams import allocation, poisson_sample

Rank = Annotated[int, Field(ge=0, strict=True)]


class _SecretSampler(Sampler[list[int]]):
    """Sampler for the process that made it, with a key of the operating system for each pass.

    In a training of R processes, the sampler of process r has the examples r, r + R, r + 2 R and so on.
    """

    def __init__(self, examples: int, rank: int, ranks: int) -> None:
        if rank >= ranks:
            raise UserError(f"rank: {rank}; allowed: 0 to {ranks - 1}, with {ranks} ranks")
        self.examples, self.rank, self.ranks = examples, rank, ranks
        self._own = np.arange(rank, examples, ranks)  # positions of the process's examples
        self._process = os.getpid()
        self._drawn = 0  # samples of the begun pass
        self._sizes = deque[int]()  # of those of them that `check` has not seen
        self._checked = False  # whether `check` sees the samples of the begun pass
        self._begin: int | None = None  # samples that the next pass leaves out; None: none, and a new key
        self._key = 0

    def __len__(self) -> int:
        """Number of samples in one pass."""
        raise NotImplementedError

    def check(self, size: int) -> None:
        """Compare the size of a batch with that of the next drawn sample, for a step on the batch.

        Args:
            size: number of examples in the batch.

        Raises:
            UserError: the sizes differ, or no sample is left: the batch isn't this sample.
        """
        self._checked = True
        drawn = self._sizes.popleft() if self._sizes else None
        if size != drawn:
            other = "no sample is left" if drawn is None else f"the drawn sample has {drawn}"
            raise UserError(
                f"batch: {size} examples, and {other}; needed: a step on every sample of the sampler, in "
                "order and whole, as `dprepro.loader` gives them"
            )

    def set_epoch(self, epoch: int) -> None:
        """Do nothing, for frameworks that call it: each pass draws other samples."""

    def state_dict(self) -> dict[str, Any]:
        """State of the begun pass, to continue it in a new process; as secret as the examples.

        A loader with workers draws samples in advance: set its "drawn" to the number of the steps made.

        Returns:
            "drawn", the number of drawn samples, and "key", of which a sampler may need further samples.
        """
        return {"drawn": self._drawn, "key": f"{self._key:032x}"}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue the pass of ``state`` with the next pass through the sampler.

        Raises:
            UserError: ``state`` is none of `state_dict`.
        """
        drawn, key = state.get("drawn"), state.get("key")
        try:
            number = int(key, 16) if isinstance(key, str) else -1
        except ValueError:
            number = -1
        if type(drawn) is not int or not 0 <= drawn <= len(self) or not 0 <= number < 2**128:
            raise UserError(f"state: of {sorted(state)}; allowed: 'drawn', 0 to {len(self)}, and 'key'")
        self._begin, self._key, self._checked = drawn, number, False

    def _pass(self) -> Iterator[list[int]]:
        """Samples of a pass, of which the drawn ones are left out."""
        self._check_process()
        if self._checked and self._sizes:
            raise UserError(
                f"{type(self).__name__}: {len(self._sizes)} samples of the last pass had no step; needed: a "
                "step on every sample, also on an empty one, or a new sampler"
            )
        self._checked = False
        if self._begin is None:
            self._key = secrets.randbits(128)
        self._drawn, self._begin = self._begin or 0, None
        self._sizes.clear()
        for sample in self._samples(self._drawn):
            self._drawn += 1
            self._sizes.append(len(sample))
            yield self._own[sample].tolist()
            self._check_process()  # a fork during a pass would have the samples of this process

    def _check_process(self) -> None:
        """Raise an error in a process that did not make the sampler."""
        if os.getpid() != self._process:
            raise UserError(
                f"{type(self).__name__}: was made in another process; "
                "needed: a sampler made in each process, with its rank"
            )

    def _samples(self, begin: int) -> Iterator[np.ndarray]:
        """Samples from number ``begin`` on, as rising places among the process's examples."""
        raise NotImplementedError


class PoissonSampler(_SecretSampler):
    """Poisson samples: each example is in a batch with the same probability, independently of all others.

    Give it to `loader`, or iterate over it and index the tensors of the data. The epsilon is that of
    `dprepro.epsilon` with the same ``examples`` and ``batch``, for the steps of all passes. Processes and
    `state_dict` are as in `BallsAndBinsSampler`; a pass that continues has new samples.
    """

    @checked
    def __init__(self, examples: Count, batch: Count, steps: Count, rank: Rank = 0, ranks: Count = 1) -> None:
        """Set the sampler up; each pass draws a new key from the operating system.

        Args:
            examples: N, number of examples of the data set.
            batch: expected size of a sample of all processes, at most N; the probability of an example is
                ``batch`` / N.
            steps: number of samples in one pass through the sampler.
            rank: this process, from 0.
            ranks: number of processes.

        Raises:
            UserError: a number is not allowed.
        """
        if batch > examples:
            raise UserError(f"batch: {batch}; allowed: 1 to {examples}, the examples")
        super().__init__(examples, rank, ranks)
        self.batch, self.steps = batch, steps

    def __len__(self) -> int:
        """Number of samples in one pass."""
        return self.steps

    def __iter__(self) -> Iterator[list[int]]:
        """New samples: positions of a sample's examples in rising order; some samples may be empty."""
        return self._pass()

    def _samples(self, begin: int) -> Iterator[np.ndarray]:
        # a new key for a pass that continues too: a step whose sample is drawn again is another step
        generator = np.random.Generator(AESCounter(key=secrets.randbits(128)))
        for _ in range(begin, self.steps):
            yield np.sort(poisson_sample(generator, len(self._own), self.batch / self.examples))


class BallsAndBinsSampler(_SecretSampler):
    """Batches of an epoch by random allocation: each example is in ``participations`` random batches.

    Give it to `loader`. Every epoch has the same number of batches, of random sizes. With Opacus, use
    ``make_private(..., poisson_sampling=False)`` and `dprepro.epsilon(sampling="allocation")`; Opacus's
    ``get_epsilon`` doesn't know such batches.

    Make the sampler in the process that iterates over the loader. A copy in another process is refused.
    Worker processes of the `DataLoader` get no copy. In distributed training each process makes a sampler
    with its ``rank``. Each example belongs to one process, which draws independently of all others. So the
    samples of all processes together are one sample of all examples, and the epsilon is the same.
    """

    @checked
    def __init__(
        self, examples: Count, batches: Count, participations: Count = 1, rank: Rank = 0, ranks: Count = 1
    ) -> None:
        """Set the sampler up; each pass draws a new key from the operating system.

        Args:
            examples: N, number of examples of the data set.
            batches: t, number of batches of an epoch; each has about ``participations`` N / t examples.
            participations: number of batches of an epoch that an example is in, at most t.
            rank: this process, from 0.
            ranks: number of processes.

        Raises:
            UserError: a number is not allowed.
        """
        if participations > batches:
            raise UserError(
                f"participations: {participations}; allowed: 1 to {batches}, the batches of an epoch"
            )
        super().__init__(examples, rank, ranks)
        self.batches, self.participations = batches, participations

    def __len__(self) -> int:
        """Number of batches of an epoch."""
        return self.batches

    def __iter__(self) -> Iterator[list[int]]:
        """Batches of a new epoch: positions of a batch's examples in rising order; some may be empty."""
        return self._pass()

    def _samples(self, begin: int) -> Iterator[np.ndarray]:
        generator = np.random.Generator(AESCounter(key=self._key))
        chosen = allocation(generator, len(self._own), self.batches, self.participations)
        for batch in range(begin, self.batches):
            yield np.flatnonzero((chosen == batch).any(1))


def loader(
    data: Dataset[Any],
    sampler: PoissonSampler | BallsAndBinsSampler,
    collate_fn: Callable[[list[Any]], Any] = default_collate,
    **options: Any,
) -> DataLoader[Any]:
    """`torch.utils.data.DataLoader` with the batches of ``sampler``, which keeps empty ones.

    An empty batch has the types and shapes of a batch, with 0 examples. Skip none: a missing step betrays
    that its sample was empty.

    Args:
        data: data set with positions and a length, such as torchvision's, or a list of examples.
        sampler: sampler of as many examples.
        collate_fn: makes a batch of a list of examples. For an empty batch it gets the first example of
            ``data``, and the batch that it makes is cut to length 0.
        options: further options of `DataLoader`, such as ``num_workers``.

    Returns:
        The loader.

    Raises:
        UserError: ``data`` has another length than the sampler, or no length.
    """
    if isinstance(data, IterableDataset) or not hasattr(data, "__len__"):
        raise UserError(f"data: {type(data).__name__} without positions; allowed: a data set with a length")
    if len(data) != sampler.examples:
        raise UserError(f"data: {len(data)} examples; the sampler has {sampler.examples}")
    return DataLoader(data, batch_sampler=sampler, collate_fn=_KeepingEmpty(data, collate_fn), **options)


class _KeepingEmpty:
    """Collation that makes an empty batch of no examples; an object, as workers need it pickled."""

    def __init__(self, data: Dataset[Any], collate: Callable[[list[Any]], Any]) -> None:
        self.data, self.collate = data, collate

    def __call__(self, examples: list[Any]) -> Any:
        return self.collate(examples) if examples else _cut(self.collate([self.data[0]]))


def _cut(batch: Any) -> Any:
    """``batch`` of one example, without the example."""
    if isinstance(batch, Tensor | np.ndarray):
        return batch[:0]
    if isinstance(batch, Mapping):
        return {name: _cut(value) for name, value in batch.items()}
    if isinstance(batch, list | tuple):
        if not all(isinstance(part, Tensor | np.ndarray | Mapping | list | tuple) for part in batch):
            return type(batch)()  # a list of one text or object for each example
        parts = [_cut(part) for part in batch]
        return type(batch)(*parts) if hasattr(batch, "_fields") else type(batch)(parts)
    raise UserError(f"collate_fn: makes {type(batch).__name__}; allowed: tensors, or lists and dicts of them")
