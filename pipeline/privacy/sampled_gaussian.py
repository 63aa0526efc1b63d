"""What one training spends, in the numbers that every accountant starts from."""

from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BeforeValidator, PlainSerializer

from pipeline.fields import Count, Positive, Strict
from pipeline.privacy.parameters import Sampling

if TYPE_CHECKING:
    from dp_accounting import DpEvent


class NeighboringRelation(Enum):
    """Relation of neighbouring data sets: dp-accounting's of the same names, whose import takes seconds."""

    ADD_OR_REMOVE_ONE = "add or remove one"
    REPLACE_ONE = "replace one"


RELATION_WORDS = {relation: relation.value for relation in NeighboringRelation}


def _relation(value: Any) -> NeighboringRelation:
    for relation, words in RELATION_WORDS.items():
        if value in (relation, words):
            return relation
    raise ValueError(f"{value!r}; allowed: {', '.join(map(repr, RELATION_WORDS.values()))}")


# What neighbouring data sets differ in. Records spell it in words.
Relation = Annotated[
    NeighboringRelation, BeforeValidator(_relation), PlainSerializer(RELATION_WORDS.__getitem__)
]


def relation_of(sampling: Sampling) -> NeighboringRelation:
    """Relation of neighbouring data sets: one more or less where batch sizes depend on their number."""
    add_or_remove = sampling in ("poisson", "allocation")
    return NeighboringRelation.ADD_OR_REMOVE_ONE if add_or_remove else NeighboringRelation.REPLACE_ONE


def sensitivity(relation: NeighboringRelation, shared: bool = False) -> float:
    """Distance of neighbouring sums of vectors that are clipped to 1, where one vector differs.

    It appears or disappears where an example of its own is added or removed. It turns around at worst, which
    is 2, where the example is replaced, or the vector is ``shared`` with others, as a mini-set's mean is.

    Args:
        relation: of neighbouring data sets.
        shared: whether a vector is of several examples.

    Returns:
        1 or 2.
    """
    return 1.0 if relation is NeighboringRelation.ADD_OR_REMOVE_ONE and not shared else 2.0


class SampledGaussian(Strict):
    """The Gaussian mechanism on a batch of ``batch`` out of ``examples``, step after step.

    ``noise_multiplier`` is the standard deviation of the noise over the L2 distance that a neighbouring data
    set moves a release by, where the differing example is in the batch; once, where it may be in it several
    times. It covers everything that a step releases: L parts at multiplier sigma each are sigma / sqrt(L).

    How a batch is drawn, and so what neighbours are:

    * ``poisson``: each example is in with probability batch / examples; neighbours add or remove one.
    * ``fixed``: ``batch`` different examples, anew each step; neighbours replace one, as in what follows.
    * ``replacement``: ``batch`` independent draws, put into ``sets`` clipped vectors. An example drawn j
      times moves up to min(j, sets) of them, each by the distance above.
    * ``shuffled``: on through a new order of all examples each epoch, so each example is in one batch of it.
    * ``allocation``: each example joins ``participations`` of an epoch's batches, drawn for it alone;
      neighbours add or remove one, as in Feldman and Shenfeld 2026. With one of them, balls and bins.

    ``first_release`` is the multiplier of Gaussian noise on something else that was released of all examples
    together, once, before the first step, such as statistics of the inputs.
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
        """m / N, the probability of an example to be in a batch; k / t of allocated batches."""
        if self.sampling == "allocation":
            return self.participations / self.batches
        return self.batch / self.examples

    @property
    def batches(self) -> int:
        """Batches of an epoch of 'shuffled' or 'allocation'."""
        return batches_of_epoch(self.examples, self.batch, self.participations)

    @property
    def neighbouring(self) -> NeighboringRelation:
        """The relation that epsilons are for."""
        return relation_of(self.sampling)

    def replacing(self) -> "SampledGaussian":
        """Bound on the same training for neighbours that replace one example.

        In a Poisson sample the example that takes another's place is in where that one was, and its clipped
        vector in the other's place moves the sum twice as far as adding it (`sensitivity`). With it in and
        without it are mixed as in a sample of a fixed size, whose bounds need no more than that all three
        releases, without, with the one and with the other, are no further apart (joint convexity: Balle,
        Barthe and Gaboardi 2018, Theorem 2). Where batches are allocated, the one takes the other's place in
        the same batch, which is taken as known.

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
        """What so many trainings spend as one, of as many times the steps: Gaussian releases add up."""
        return self.model_copy(
            update={"first_release": self.first_release and self.first_release / trainings**0.5}
        )

    def event(self, steps: int) -> "DpEvent":
        """What ``steps`` steps spend, and what came before them, in the words of dp-accounting."""
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
        """Epochs begun in ``steps`` steps; examples too few for a last batch are left out of an epoch."""
        return -(-steps // self.batches)


def batches_of_epoch(examples: int, batch: int, participations: int = 1) -> int:
    """Batches of an epoch in which each of ``examples`` joins ``participations`` of them."""
    return max(participations, participations * examples // batch)
