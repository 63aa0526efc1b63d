"""Epsilon of DP-SGD from its settings, and the noise for a target epsilon."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import chain
from math import ceil
from typing import Annotated, Any, Literal

from dp_accounting import NeighboringRelation
from pydantic import Field, ValidationError

from dprepro.accountants.attack_risk import gaussian_risk, stated_risk
from dprepro.accountants.bounds import (
    Drawn,
    bounds_of,
    composed_epsilon,
    selection_epsilon,
    smallest_bound,
)
from dprepro.accountants.calibration import least_noise
from dprepro.accountants.opacus import epsilons as epsilons_by_opacus
from dprepro.accountants.rdp import TAN
from dprepro.accountants.rdp import epsilons as epsilons_by_formulas
from dprepro.accountants.records import (
    AccountSettings,
    Risk,
    SampledGaussian,
    down,
    relation_of,
    sensitivity,
    up,
)
from dprepro.accountants.worst_instance import worst_epsilon
from dprepro.checking import checked, problem_lines, warn
from dprepro.errors import UserError
from dprepro.fields import Count, Delta, Epsilon, Positive

Sampling = Literal["poisson", "fixed", "shuffled", "allocation"]
# noise multiplier, sampling rate and number of steps, as in the history of Opacus's accountants
Stretch = tuple[Positive, Annotated[float, Field(gt=0, le=1)], Count]
FINEST = 10**9  # denominator of a sampling rate


@dataclass(frozen=True)
class Spent:
    """Bounds on epsilon of DP-SGD with given settings, at a delta."""

    epsilon_upper: float | None  # the least proven upper bound; None: nothing is proven
    proven_by: str | None  # the accountant of `epsilon_upper`, such as 'pld'
    epsilon_lower: float | None  # lower bound, on the worst known pair of neighbours; it proves no privacy
    approximations: dict[str, float]  # epsilons that may be far too small, such as TAN's Eq. 4
    neighbouring: NeighboringRelation  # relation of neighbouring data sets
    delta: float
    steps: int
    risk: Risk | None  # attack risk, and mu of Gaussian DP with its regret; None: nothing is proven
    mechanism: SampledGaussian  # of a step, for `compose`
    # upper bound for a search that releases only its best training (`best_of`); None: not asked for
    best: float | None = None

    @cached_property
    def by(self) -> dict[str, float]:
        """Upper bound by every accountant that has one; the first use imports Opacus, which takes seconds."""
        asked = self.mechanism, self.steps, self.delta
        bounds, _ = bounds_of(*asked)
        least = smallest_bound(*asked)
        others = (accountant(*asked, least) for accountant in (epsilons_by_formulas, epsilons_by_opacus))
        return {
            each.accountant: up(each.epsilon)
            for each in chain(bounds.values(), *others)
            if each.epsilon is not None and each.note != TAN
        }


@dataclass(frozen=True)
class Composed:
    """Upper bound on epsilon of several trainings on the same private examples."""

    epsilon_upper: float
    proven_by: str  # method of the bound
    neighbouring: NeighboringRelation
    delta: float  # of all trainings together


@checked
def epsilon(
    *,
    examples: int,
    batch: int,
    noise_multiplier: float,
    delta: float,
    epochs: float | None = None,
    steps: int | None = None,
    sampling: Sampling = "poisson",
    participations: Count = 1,
    best_of: float | None = None,
    drawn: Drawn = "geometric",
) -> Spent:
    """Epsilon of DP-SGD (Abadi et al. 2016) with these settings, and of a random search among such trainings.

    Args:
        examples: N, number of private training examples.
        batch: batch size; for Poisson samples, the expected batch size. The sampling rate is ``batch`` /
            ``examples``. The rate of Opacus's loader is 1 / ``len(loader)``, which may be larger: for this
            rate give ``examples=len(loader), batch=1``.
        noise_multiplier: standard deviation of the noise on a step's sum, divided by the clipping bound C of
            each example's gradient. With 'poisson' and 'allocation', neighbours add or remove an example,
            which moves the sum by C. With 'fixed' and 'shuffled', neighbours replace an example, which moves
            the sum by 2 C.
        delta: delta of the guarantee; it should be below 1/N.
        epochs: number of passes over the examples. An epoch of 'allocation' has ``participations`` passes:
            for E epochs of such a sampler give ``E * participations``. Give either this or ``steps``.
        steps: number of steps of the training.
        sampling: sampling of the batches. 'poisson': each example is in a batch with the same probability.
            'fixed': a batch has a fixed number of different examples. 'shuffled': every epoch has a new
            order. 'allocation': each example is in one random batch of an epoch (balls and bins:
            `BallsAndBinsSampler`) of ``participations * examples // batch`` batches. For a sampler of t
            batches give ``participations * examples / t`` rounded up as ``batch``. Rounded down, the epsilon
            may be for more batches than t, and then it is too small.
        participations: number of batches of an epoch with the same example; above 1 only for 'allocation'.
        best_of: mean number of trainings in a random search that releases only its best training (Papernot
            and Steinke 2022). The number of trainings has the distribution ``drawn``. Each training has
            random settings; settings that are no arguments here may differ between trainings. The best must
            be chosen on other data than these examples, or by a private score that is accounted for. None: a
            single training.
        drawn: distribution of the number of trainings: 'logarithmic', 'geometric' or 'poisson'. Only a
            Poisson number may be 0. Then nothing is released; don't draw again.

    Returns:
        Upper and lower bounds on epsilon with their accountants, and an attacker's chance of success.

    Raises:
        UserError: a value is not allowed; the message names it and the allowed values.

    Warns:
        UserWarning: ``delta`` is at least 1/N.
    """
    settings = dpsgd_settings(
        noise_multiplier, examples=examples, batch=batch, epochs=epochs, steps=steps, delta=delta,
        sampling=sampling, participations=participations,
    )  # fmt: skip
    spending, total_steps = settings.spending, settings.total_steps
    bounds, _ = bounds_of(spending, total_steps, delta)
    epsilons = {each.accountant: each.epsilon for each in bounds.values() if each.epsilon is not None}
    proven_by = min(epsilons, key=lambda name: epsilons[name])
    least = epsilons[proven_by]
    approximations = {
        each.accountant: up(each.epsilon)
        for each in epsilons_by_formulas(spending, total_steps, delta, least)
        if each.epsilon is not None and each.note == TAN
    }
    _warn_of_large(delta, examples)
    best = None if best_of is None else up(selection_epsilon(spending, total_steps, delta, best_of, drawn))
    return Spent(
        epsilon_upper=up(least),
        proven_by=proven_by,
        epsilon_lower=down(worst_epsilon(spending, total_steps, delta, least)),
        approximations=approximations,
        neighbouring=NeighboringRelation[spending.neighbouring.name],
        delta=delta,
        steps=total_steps,
        risk=stated_risk(gaussian_risk(spending, total_steps, delta, least)),
        mechanism=spending,
        best=best,
    )


@checked
def compose(trainings: Sequence[Spent | Stretch], delta: Delta | None = None) -> Composed:
    """Epsilon of several trainings on the same private examples, whose results are all released.

    Choose the number of trainings and all arguments of `epsilon` in advance. Other settings, such as step
    sizes, may depend on the results of earlier trainings. If one training's neighbours replace an example,
    the composition's neighbours do too.

    Args:
        trainings: results of `epsilon`, one for each training; or stretches of steps on Poisson samples, each
            as ``(noise multiplier, sampling rate, steps)``. The ``history`` of an Opacus accountant and of
            `PrivateBackward` are such stretches.
        delta: delta of all trainings together. None: the smallest delta of a training.

    Returns:
        Upper bound; it covers all trainings together.

    Raises:
        UserError: there is no training, one is a search (``best_of``), or no delta is given.
    """
    if not trainings:
        raise UserError("trainings: none; needed: at least one")
    spent = [each for each in trainings if isinstance(each, Spent)]
    if any(each.best is not None for each in spent):
        raise UserError("trainings: a search (best_of); allowed: single trainings")
    if (delta := delta or min((each.delta for each in spent), default=None)) is None:
        raise UserError("delta: missing; needed for steps, which have none")
    mechanisms = [
        (each.mechanism, each.steps) if isinstance(each, Spent) else (_of_rate(*each[:2]), each[2])
        for each in trainings
    ]
    total, delta, relation, accountant = composed_epsilon([(*each, delta) for each in mechanisms])
    return Composed(up(total), accountant, NeighboringRelation[relation.name], delta)


@checked
def noise_multiplier(
    epsilon: Epsilon,
    *,
    examples: int,
    batch: int,
    delta: float,
    epochs: float | None = None,
    steps: int | None = None,
    sampling: Sampling = "poisson",
    participations: Count = 1,
) -> float:
    """Noise multiplier with which the tightest proven bound is at most ``epsilon``.

    This bound is between .998 times ``epsilon`` and ``epsilon``.

    Args:
        epsilon: target, above 0.
        examples: N, number of private training examples.
        batch: batch size; for Poisson samples, the expected batch size.
        delta: delta of the guarantee; it should be below 1/N.
        epochs: number of passes over the examples, as in `epsilon`. Give either this or ``steps``.
        steps: number of steps of the training.
        sampling: as in `epsilon`, with the neighbouring relation and, for 'allocation', the batch size given
            there.
        participations: number of batches of an epoch with the same example; above 1 only for 'allocation'.

    Returns:
        Standard deviation of the noise on a step's sum, divided by the clipping bound C.

    Raises:
        UserError: a value is not allowed; the message names it and the allowed values.

    Warns:
        UserWarning: ``delta`` is at least 1/N.
    """
    _warn_of_large(delta, examples)

    def settings_at(noise: float) -> AccountSettings:
        return dpsgd_settings(
            noise, examples=examples, batch=batch, epochs=epochs, steps=steps, delta=delta,
            sampling=sampling, participations=participations,
        )  # fmt: skip

    def spending_at(noise: float) -> SampledGaussian:
        return settings_at(noise).spending

    return least_noise(epsilon, delta, settings_at(1.0).total_steps, spending_at)


def dpsgd_settings(noise_multiplier: float, **options: Any) -> AccountSettings:
    """Settings of DP-SGD; the unit of the noise multiplier is the clipping bound, as in Opacus.

    The unit of `AccountSettings.noise_multiplier` is the distance of neighbouring sums. If neighbours replace
    an example, this distance is twice the clipping bound, so the noise multiplier is halved. Epochs become a
    whole number of steps, rounded up.

    Args:
        noise_multiplier: standard deviation of the noise divided by the clipping bound.
        **options: further fields of `AccountSettings`.

    Returns:
        The settings.

    Raises:
        UserError: a value is not allowed; the message names it and the allowed values.
    """
    try:
        settings = AccountSettings(noise_multiplier=noise_multiplier, claimed_by="rdp", **options)
    except ValidationError as problem:
        raise UserError("\n".join(problem_lines(problem))) from problem
    # a data loader takes one more step for an incomplete last batch
    steps = ceil(settings.length)
    distance = sensitivity(relation_of(settings.sampling))
    changes = {"epochs": None, "steps": steps, "noise_multiplier": noise_multiplier / distance}
    return settings.model_copy(update=changes)


def _of_rate(noise_multiplier: float, rate: float) -> SampledGaussian:
    """Mechanism of a step with a sampling ``rate``; if no fraction of small numbers is the rate, a larger."""
    share = Fraction(rate).limit_denominator(FINEST)
    if float(share) < rate:
        share = Fraction(ceil(rate * FINEST), FINEST)
    return SampledGaussian(
        sampling="poisson",
        noise_multiplier=noise_multiplier,
        examples=share.denominator,
        batch=share.numerator,
    )


def _warn_of_large(delta: float, examples: int) -> None:
    if delta * examples >= 1:
        warn(f"delta: {delta:g} is at least 1/N for N = {examples} examples")
