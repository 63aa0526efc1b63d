"""Records of accounting: a step's mechanism, settings of a training, results, and the rounding of bounds.

They load no accountant.
"""

from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from enum import StrEnum
from importlib.metadata import version
from math import sqrt
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from dprepro.fields import Count, Delta, NotNegative, Plain, Positive, Probability, Sampling, Strict, omitted

if TYPE_CHECKING:
    from dp_accounting import DpEvent

# largest number of steps: for closed forms, and for several sets of draws with replacement
MOST_STEPS, MOST_OF_SETS = 10**12, 10**6
# Machines and numpy versions round a Fourier transform of losses differently. After 600,000 steps, epsilon
# differs by a relative 1e-5. So the last stored digit may differ by one, at most a relative
# `MACHINE_TOLERANCE`.
DIGITS, NOISE = 5, 14
MACHINE_TOLERANCE = 10.0 ** (1 - DIGITS)


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

    ``group`` is the largest number of examples of a person; neighbours then add or remove a person with all
    examples. None: neighbours differ in one example. A person's examples are drawn independently, so a step
    is a mixture of Gaussian mechanisms over the binomial number of those drawn (Ganesh 2024, Tight
    Group-Level DP Guarantees for DP-SGD with Sampling via Mixture of Gaussians Mechanisms).
    """

    sampling: Sampling
    noise_multiplier: Positive
    examples: Count  # N
    batch: Count  # m
    sets: Count = 1  # k
    participations: Count = 1  # 'allocation': batches of an epoch that an example is in
    first_release: Positive | None = None
    group: Count | None = omitted(None)

    @model_validator(mode="after")
    def _group_is_sampled_by_itself(self) -> "SampledGaussian":
        if self.group is not None and (self.sampling != "poisson" or self.first_release is not None):
            raise ValueError(f"group: {self.group}; allowed with 'sampling: poisson' alone")
        return self

    @property
    def grouped(self) -> bool:
        """Return whether neighbouring data sets may differ in several examples."""
        return (self.group or 1) > 1

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
        assert self.group is None, "of neighbours that replace a person there is no bound"
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
        from dp_accounting.dp_event import MixtureOfGaussiansDpEvent

        mechanism: DpEvent = GaussianDpEvent(self.noise_multiplier)
        times = steps
        if self.grouped:
            from dprepro.accountants.gaussian import mixture

            distances, probabilities = mixture(self)
            mechanism = MixtureOfGaussiansDpEvent(self.noise_multiplier, distances, probabilities)
        elif self.sampling == "poisson":
            mechanism = PoissonSampledDpEvent(self.rate, mechanism)
        elif self.sampling == "fixed":
            mechanism = SampledWithoutReplacementDpEvent(self.examples, self.batch, mechanism)
        elif self.sampling == "replacement":
            mechanism = SampledWithReplacementDpEvent(self.examples, self.batch, mechanism)
        elif self.sampling == "allocation":
            from dprepro.accountants.allocation import RandomAllocationDpEvent

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


class AccountSettings(Strict):
    """Settings of a private training that its accounting needs; also under `accounts` in params.yaml."""

    # the default setting that names levels
    axis: ClassVar[str] = "noise_multiplier"

    sampling: Sampling = "poisson"
    examples: Count  # N
    batch: Count  # m; 'poisson': expected batch size
    epochs: Positive | None = None  # passes over the examples; either `epochs` or `steps` is given
    steps: Count | None = None
    # standard deviation of the noise divided by the distance that one example moves a part; limited, so that
    # floats don't overflow
    noise_multiplier: Annotated[float, Field(ge=1e-9, le=1e9)]
    parts: Count = 1  # L: parts of the gradient, clipped and noised separately
    participations: Count = 1  # 'allocation' only: batches of an epoch that each example is in
    # k: clipped vectors of a step; 'replacement' only, where an example may be in several of them
    sets: Count | None = None
    delta: Delta = 1e-5  # as claimed, even if it is above 1/N and so means little
    claimed_by: Literal["clt", "rdp"] = "clt"  # accountant of the paper
    # 'rdp' only: order alpha at which the Renyi divergence of all steps is reported
    order: Annotated[float, Field(gt=1, allow_inf_nan=False)] | None = None

    @model_validator(mode="after")
    def _means_something(self) -> "AccountSettings":
        if self.batch > self.examples:
            raise ValueError(f"batch: {self.batch} is larger than examples; allowed: 1 to {self.examples}")
        if (self.sets is None) == (self.sampling == "replacement"):
            raise ValueError(f"sets: {self.sets}; it goes with 'sampling: replacement', and only with it")
        if self.sampling == "replacement" and self.examples < 2:
            raise ValueError("examples: 1; allowed with 'sampling: replacement': 2 or more")
        if self.participations > 1 and self.sampling != "allocation":
            raise ValueError(
                f"participations: {self.participations}; allowed above 1 with 'sampling: allocation' only"
            )
        if (self.epochs is None) == (self.steps is None):
            given = "neither is given" if self.epochs is None else "both are given"
            raise ValueError(f"epochs, steps: {given}; needed: one of them, the length of the training")
        if not self.length <= MOST_STEPS:
            raise ValueError(f"{self.length:.3g} steps; allowed: 1 to {MOST_STEPS:.0e}")
        if (self.sets or 1) > 1 and self.length > MOST_OF_SETS:
            raise ValueError(f"{self.length:.3g} steps; allowed with more sets than one: 1 to {MOST_OF_SETS}")
        if self.order is not None and (self.claimed_by, self.sampling) != ("rdp", "poisson"):
            raise ValueError("order: goes with 'claimed_by: rdp' and 'sampling: poisson', and only with them")
        return self

    @property
    def total_steps(self) -> int:
        """Number of steps T: `steps`, or the steps of `epochs` passes."""
        return max(1, round(self.length))

    @property
    def length(self) -> float:
        """`total_steps` before rounding; passes of 'shuffled' and 'allocation' have whole batches only."""
        whole = self.sampling in ("shuffled", "allocation")
        batches = batches_of_epoch(self.examples, self.batch, self.participations)
        of, by = (batches, self.participations) if whole else (self.examples, self.batch)
        # multiplied first, so that a whole number of steps is exact
        return self.steps or (self.epochs or 0.0) * of / by

    @property
    def spending(self) -> SampledGaussian:
        """Mechanism of a step.

        The L `parts` of a gradient, each with noise multiplier z, count as one part with noise multiplier
        z / sqrt(L) (Nguyen et al. 2023, section 3.2).
        """
        return SampledGaussian(
            sampling=self.sampling,
            noise_multiplier=self.noise_multiplier / sqrt(self.parts),
            examples=self.examples,
            batch=self.batch,
            sets=self.sets or 1,
            participations=self.participations,
        )


class AccountantEpsilon(Strict):
    """Epsilon by one accountant of one library."""

    accountant: Plain  # e.g. 'pld (dp-accounting 0.6.0)'
    epsilon: NotNegative | None  # None: not computed; `note` says why
    note: Plain | None = None


class Risk(Strict):
    """Attack risk and Gaussian DP of a mechanism; upper bounds."""

    tpr_at_1_percent: Probability  # true-positive rate at a false-positive rate of .01
    tpr_at_01_percent: Probability  # at .001
    advantage: Probability  # true-positive rate minus false-positive rate
    # smallest mu whose Gaussian trade-off curve is below the mechanism's, if both error rates are at least
    # `least_rate`; None: there is no such mu
    mu: NotNegative | None
    least_rate: Probability  # cut-off for mu; sampled Gaussians have no natural mu without a cut-off
    regret: Probability | None  # largest error of Gaussian DP at `mu` in an attack's two error rates


def library(name: str) -> str:
    """Name and version of an accounting library."""
    return f"{name} {version(name)}"


def up(epsilon: float) -> float:
    """Round an upper bound upwards to `DIGITS` digits; digits after the first `NOISE` are ignored."""
    return float(rounded_up(_without_noise_digits(epsilon), DIGITS))


def down(epsilon: float) -> float:
    """Round a lower bound downwards to `DIGITS` digits; digits after the first `NOISE` are ignored."""
    return float(rounded_down(_without_noise_digits(epsilon), DIGITS))


def rounded_up(value: float, digits: int) -> Decimal:
    """``value`` rounded up to ``digits`` significant digits, so that an upper bound stays one."""
    return _rounded(value, digits, ROUND_CEILING)


def rounded_down(value: float, digits: int) -> Decimal:
    """``value`` rounded down to ``digits`` significant digits, so that a lower bound stays one."""
    return _rounded(value, digits, ROUND_FLOOR)


def _rounded(value: float, digits: int, rounding: str) -> Decimal:
    exact = Decimal(repr(value))
    rounded = Context(prec=digits, rounding=rounding).plus(exact).normalize()
    is_integer = rounded == rounded.to_integral_value() and rounded.adjusted() < Context().prec
    return rounded.quantize(Decimal(1)) if is_integer else rounded


def _without_noise_digits(value: float) -> float:
    """Round to `NOISE` digits; all further digits are numerical noise. 0.1 + 0.15 becomes exactly 0.25."""
    return float(f"{value:.{NOISE}g}")
