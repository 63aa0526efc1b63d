"""Spending of a training: the parameters that every accountant needs."""

from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BeforeValidator, PlainSerializer

from pipeline.fields import Count, Positive, Strict
from pipeline.privacy.parameters import Sampling

if TYPE_CHECKING:
    from dp_accounting import DpEvent


class NeighboringRelation(Enum):
    """Relation of neighbouring data sets, with the names of dp-accounting's, whose import takes seconds."""

    ADD_OR_REMOVE_ONE = "add or remove one"
    REPLACE_ONE = "replace one"


RELATION_WORDS = {relation: relation.value for relation in NeighboringRelation}


def _relation(value: Any) -> NeighboringRelation:
    for relation, words in RELATION_WORDS.items():
        if value in (relation, words):
            return relation
    raise ValueError(f"{value!r}; allowed: {', '.join(map(repr, RELATION_WORDS.values()))}")


# neighbouring relation, in words in records
Relation = Annotated[
    NeighboringRelation, BeforeValidator(_relation), PlainSerializer(RELATION_WORDS.__getitem__)
]


def relation_of(sampling: Sampling) -> NeighboringRelation:
    """Relation of neighbouring data sets: add or remove one if batch sizes depend on their number."""
    add_or_remove = sampling in ("poisson", "allocation")
    return NeighboringRelation.ADD_OR_REMOVE_ONE if add_or_remove else NeighboringRelation.REPLACE_ONE


def sensitivity(relation: NeighboringRelation, shared: bool = False) -> float:
    """Distance of neighbouring sums of vectors that are clipped to 1, if one vector differs.

    A vector of a single example appears or disappears if the example is added or removed. If the example is
    replaced, or the vector is ``shared`` with others, as a mini-set's mean, it turns around in the worst
    case, a distance of 2.

    Args:
        relation: neighbouring relation.
        shared: whether a vector is of several examples.

    Returns:
        1 or 2.
    """
    return 1.0 if relation is NeighboringRelation.ADD_OR_REMOVE_ONE and not shared else 2.0


class SampledGaussian(Strict):
    """Gaussian mechanism on a batch of ``batch`` out of ``examples``, step after step.

    ``noise_multiplier`` is the standard deviation of the noise over the L2 distance of neighbouring releases,
    if the differing example is in the batch once. It covers everything that a step releases: L parts at
    multiplier sigma each are sigma / sqrt(L).

    Sampling, and the neighbouring relation:

    * ``poisson``: each example is in with probability batch / examples; neighbours add or remove one.
    * ``fixed``: ``batch`` different examples, anew each step; neighbours replace one, as in the next two.
    * ``replacement``: ``batch`` independent draws, put into ``sets`` clipped vectors. An example drawn j
      times moves up to min(j, sets) of them, each by the distance above.
    * ``shuffled``: consecutive batches of a new order of all examples in each epoch, so each example is in
      one of them.
    * ``allocation``: each example is in ``participations`` random batches of an epoch, independently;
      neighbours add or remove one, as in Feldman and Shenfeld 2026. With one participation, balls and bins.

    ``first_release`` is the multiplier of Gaussian noise on another release of all examples together, before
    the first step, such as statistics of the inputs.
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
        """m / N, the probability of an example to be in a batch; k / t for allocated batches."""
        if self.sampling == "allocation":
            return self.participations / self.batches
        return self.batch / self.examples

    @property
    def batches(self) -> int:
        """Number of batches of an epoch of 'shuffled' or 'allocation'."""
        return batches_of_epoch(self.examples, self.batch, self.participations)

    @property
    def neighbouring(self) -> NeighboringRelation:
        """Neighbouring relation of its epsilons."""
        return relation_of(self.sampling)

    def replacing(self) -> "SampledGaussian":
        """Bound on the same training for neighbours that replace one example.

        In a Poisson sample the replacing example is in exactly when the replaced one was, and its clipped
        vector in the other's place moves the sum twice as far as adding it (`sensitivity`). Releases with and
        without it are mixed as in a sample of fixed size, whose bounds only need that the three releases,
        without, with the one and with the other, are no further apart (joint convexity: Balle, Barthe and
        Gaboardi 2018, Theorem 2). If batches are allocated, the one takes the other's place in the same
        batch, which is taken as known.

        Returns:
            A mechanism that spends no less for such neighbours.
        """
        if self.neighbouring is NeighboringRelation.REPLACE_ONE:
            return self
        first_release = self.first_release and self.first_release / 2
        halved = {"noise_multiplier": self.noise_multiplier / 2, "first_release": first_release}
        sampling = "shuffled" if self.sampling == "allocation" else "fixed"
        return self.model_copy(update={"sampling": sampling, **halved})

    def repeated(self, trainings: int) -> "SampledGaussian":
        """Spending of several trainings as one longer training, because Gaussian releases compose."""
        return self.model_copy(
            update={"first_release": self.first_release and self.first_release / trainings**0.5}
        )

    def event(self, steps: int) -> "DpEvent":
        """Event of ``steps`` steps and of an earlier release, for dp-accounting."""
        from dp_accounting import ComposedDpEvent, GaussianDpEvent

        if self.first_release is None:
            return self._event_of_steps(steps)
        return ComposedDpEvent([GaussianDpEvent(self.first_release), self._event_of_steps(steps)])

    def _event_of_steps(self, steps: int) -> "DpEvent":
        from dp_accounting import (
            GaussianDpEvent,
            PoissonSampledDpEvent,
            SampledWithoutReplacementDpEvent,
            SampledWithReplacementDpEvent,
            SelfComposedDpEvent,
        )

        mechanism = GaussianDpEvent(self.noise_multiplier)
        if self.sampling == "poisson":
            return SelfComposedDpEvent(PoissonSampledDpEvent(self.rate, mechanism), steps)
        if self.sampling == "allocation":
            from pipeline.privacy.allocation import RandomAllocationDpEvent

            allocated = RandomAllocationDpEvent(self.batches, self.participations, mechanism)
            return SelfComposedDpEvent(allocated, self.epochs(steps))
        if self.sampling == "fixed":
            return SelfComposedDpEvent(
                SampledWithoutReplacementDpEvent(self.examples, self.batch, mechanism), steps
            )
        if self.sampling == "replacement":
            return SelfComposedDpEvent(
                SampledWithReplacementDpEvent(self.examples, self.batch, mechanism), steps
            )
        return SelfComposedDpEvent(mechanism, self.epochs(steps))

    def epochs(self, steps: int) -> int:
        """Number of epochs begun in ``steps`` steps; an epoch leaves out the last incomplete batch."""
        return -(-steps // self.batches)


def batches_of_epoch(examples: int, batch: int, participations: int = 1) -> int:
    """Number of batches of an epoch in which each of ``examples`` is in ``participations`` of them."""
    return max(participations, participations * examples // batch)
