"""Spending of a training: the parameters that every accountant needs."""

from enum import StrEnum
from typing import TYPE_CHECKING

from dprepro.fields import Count, Positive, Strict
from dprepro.privacy.parameters import Sampling

if TYPE_CHECKING:
    from dp_accounting import DpEvent


class NeighboringRelation(StrEnum):
    """Relation of neighbouring data sets; names as in dp-accounting, whose import takes seconds.

    Records have it in words.
    """

    ADD_OR_REMOVE_ONE = "add or remove one"
    REPLACE_ONE = "replace one"


def relation_of(sampling: Sampling) -> NeighboringRelation:
    """Neighbouring relation: add or remove one for 'poisson' and 'allocation', otherwise replace one."""
    add_or_remove = sampling in ("poisson", "allocation")
    return NeighboringRelation.ADD_OR_REMOVE_ONE if add_or_remove else NeighboringRelation.REPLACE_ONE


def sensitivity(relation: NeighboringRelation, shared: bool = False) -> float:
    """Largest distance of neighbouring sums of vectors that are clipped to 1, if one vector differs.

    If an example with a vector of its own is added or removed, the vector appears or disappears: a distance
    of 1. If the example is replaced, or shares the vector with other examples of a mini-set, the vector's
    direction is reversed in the worst case: a distance of 2.

    Args:
        relation: neighbouring relation.
        shared: whether a vector depends on several examples.

    Returns:
        1 or 2.
    """
    return 1.0 if relation is NeighboringRelation.ADD_OR_REMOVE_ONE and not shared else 2.0


class SampledGaussian(Strict):
    """Gaussian mechanism of each step, on a batch of ``batch`` out of ``examples`` examples.

    ``noise_multiplier`` is the standard deviation of the noise divided by the L2 distance of neighbouring
    releases, if the differing example is in the batch once. It is for everything that a step releases: L
    parts, each at multiplier sigma, are one release at sigma / sqrt(L).

    Sampling, and the neighbouring relation:

    * ``poisson``: each example is in the batch with probability batch / examples; neighbours add or remove
      one.
    * ``fixed``: ``batch`` different examples, drawn anew each step; neighbours replace one.
    * ``replacement``: ``batch`` independent draws, divided among ``sets`` clipped vectors; neighbours replace
      one. An example drawn j times moves up to min(j, sets) vectors, each by the L2 distance in the
      definition of ``noise_multiplier``.
    * ``shuffled``: consecutive batches of a new random order in each epoch; neighbours replace one. Each
      example is in at most one batch of an epoch.
    * ``allocation``: each example is in ``participations`` random batches of an epoch, independently of other
      examples; neighbours add or remove one, as in Feldman and Shenfeld 2026. With 1 participation this is
      balls and bins.

    ``first_release`` is the noise multiplier of a Gaussian release about all examples, before the first step,
    such as statistics of the inputs.
    """

    sampling: Sampling
    noise_multiplier: Positive
    examples: Count  # N
    batch: Count  # m
    sets: Count = 1  # k
    participations: Count = 1  # 'allocation': batches of an epoch that an example is in
    first_release: Positive | None = None

    @property
    def rate(self) -> float:
        """Probability of being in a batch: batch / examples; 'allocation': participations / batches."""
        if self.sampling == "allocation":
            return self.participations / self.batches
        return self.batch / self.examples

    @property
    def batches(self) -> int:
        """Number of batches in an epoch of 'shuffled' or 'allocation'."""
        return batches_of_epoch(self.examples, self.batch, self.participations)

    @property
    def neighbouring(self) -> NeighboringRelation:
        """Neighbouring relation of the mechanism's epsilons."""
        return relation_of(self.sampling)

    def replacing(self) -> "SampledGaussian":
        """Mechanism whose epsilons also hold for the same training if neighbours replace one example.

        In a Poisson sample, the new example is in the batch exactly when the replaced example was. Replacing
        moves the sum twice as far as adding (`sensitivity`), so the multipliers are halved. A step is a
        mixture of releases with and without the example, as it is for a sample of fixed size. So the bounds
        for fixed size apply: they depend only on the largest distance among three releases, without the
        example, with the old one and with the new one (joint convexity: Balle, Barthe and Gaboardi 2018,
        Theorem 2). If batches are allocated, the new example takes the old one's place in the same batch. The
        attacker is assumed to know this batch.

        Returns:
            A mechanism that spends at least as much for such neighbours.
        """
        if self.neighbouring is NeighboringRelation.REPLACE_ONE:
            return self
        first_release = self.first_release and self.first_release / 2
        halved = {"noise_multiplier": self.noise_multiplier / 2, "first_release": first_release}
        sampling = "shuffled" if self.sampling == "allocation" else "fixed"
        return self.model_copy(update={"sampling": sampling, **halved})

    def repeated(self, trainings: int) -> "SampledGaussian":
        """Mechanism of several equal ``trainings`` as one longer training; first releases become one."""
        return self.model_copy(
            update={"first_release": self.first_release and self.first_release / trainings**0.5}
        )

    def event(self, steps: int) -> "DpEvent":
        """Event of ``first_release`` and of ``steps`` steps, for dp-accounting."""
        from dp_accounting import (
            ComposedDpEvent,
            GaussianDpEvent,
            PoissonSampledDpEvent,
            SampledWithoutReplacementDpEvent,
            SampledWithReplacementDpEvent,
            SelfComposedDpEvent,
        )

        mechanism: DpEvent = GaussianDpEvent(self.noise_multiplier)
        times = steps
        if self.sampling == "poisson":
            mechanism = PoissonSampledDpEvent(self.rate, mechanism)
        elif self.sampling == "fixed":
            mechanism = SampledWithoutReplacementDpEvent(self.examples, self.batch, mechanism)
        elif self.sampling == "replacement":
            mechanism = SampledWithReplacementDpEvent(self.examples, self.batch, mechanism)
        elif self.sampling == "allocation":
            from dprepro.privacy.allocation import RandomAllocationDpEvent

            mechanism = RandomAllocationDpEvent(self.batches, self.participations, mechanism)
            times = self.epochs(steps)
        else:
            # 'participations' are above 1 for an allocation that is known (`replacing`)
            times = self.epochs(steps) * self.participations
        composed = SelfComposedDpEvent(mechanism, times)
        if self.first_release is None:
            return composed
        return ComposedDpEvent([GaussianDpEvent(self.first_release), composed])

    def epochs(self, steps: int) -> int:
        """Number of epochs begun in ``steps`` steps; an epoch leaves out the last incomplete batch."""
        return -(-steps // self.batches)


def batches_of_epoch(examples: int, batch: int, participations: int = 1) -> int:
    """Number of batches in an epoch, if each of ``examples`` is in ``participations`` batches."""
    return max(participations, participations * examples // batch)
