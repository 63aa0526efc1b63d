"""Epsilon of DP-SGD by its settings, and the noise for a target epsilon."""

from dataclasses import dataclass
from typing import Literal

from dp_accounting import NeighboringRelation

from dprepro.checking import checked
from pipeline.fields import Count
from pipeline.ledgers.accounts import dpsgd_settings, spending_of
from pipeline.ledgers.ledger import make_ledger
from pipeline.ledgers.precision import up
from pipeline.privacy.account_settings import AccountSettings
from pipeline.privacy.calibration import least_noise
from pipeline.privacy.parameters import Epsilon
from pipeline.privacy.risk import Risk
from pipeline.privacy.sampled_gaussian import SampledGaussian
from pipeline.privacy.selection import Drawn, selection_epsilon

Sampling = Literal["poisson", "fixed", "shuffled", "allocation"]


@dataclass(frozen=True)
class Spent:
    """Bounds on epsilon of settings, at a delta."""

    epsilon_upper: float | None  # the least proven upper bound; None: nothing is proven
    proven_by: str | None  # the accountant whose bound that is, such as 'pld'
    epsilon_lower: float | None  # lower bound, on the worst known pair of neighbours; it proves no privacy
    by: dict[str, float]  # epsilon by every accountant that has one
    neighbouring: NeighboringRelation  # relation of neighbouring data sets
    delta: float
    steps: int
    risk: Risk | None  # attack risk, and mu of Gaussian DP with its regret; None: nothing is proven
    # upper bound for the release of the best of a random number of such trainings only; None: not asked for
    best: float | None = None


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
        examples: N, private examples to train on.
        batch: examples of a step; for Poisson samples, the expected number.
        noise_multiplier: standard deviation of the noise on a step's sum, over the clipping bound C of each
            example's gradient. Poisson samples and allocated batches are accounted for neighbours that add or
            remove an example, which moves the sum by C; the others for neighbours that replace one, which
            moves it by 2 C.
        delta: delta of the guarantee; it should be below 1/N.
        epochs: passes over the examples; or ``steps``.
        steps: steps of the training; or ``epochs``.
        sampling: 'poisson', each example joins with one probability; 'fixed', a fixed number of different
            examples; 'shuffled', batches of a new order in every epoch; 'allocation', each example in one
            random batch of an epoch (balls and bins: `BallsAndBinsSampler`), with an expected size of
            ``batch`` or a few more.
        participations: batches of an epoch that an example is in; more than 1 with 'allocation' only.
        best_of: average number of trainings in a random search that releases only its best training (Papernot
            and Steinke 2022). Their number has the law ``drawn``, and each has a random candidate. The best
            must be judged on other data than these examples, or by a private score that is accounted for.
            Candidates may differ in settings other than these arguments. None: a single training.
        drawn: law of that number: 'logarithmic', 'geometric' or 'poisson'.

    Returns:
        Upper and lower bounds on epsilon, attack risk, and the accountants behind them.

    Raises:
        UserError: a value is not allowed; the message names it and the allowed values.
    """
    settings = dpsgd_settings(
        noise_multiplier, examples=examples, batch=batch, epochs=epochs, steps=steps, delta=delta,
        sampling=sampling, participations=participations,
    )  # fmt: skip
    spending, total_steps = spending_of(settings), settings.total_steps
    ledger = make_ledger(spending, total_steps, delta, None)
    best = None if best_of is None else up(selection_epsilon(spending, total_steps, delta, best_of, drawn))
    return Spent(
        epsilon_upper=ledger.epsilon_upper,
        proven_by=ledger.accountant,
        epsilon_lower=ledger.epsilon_lower,
        by={entry.accountant: entry.epsilon for entry in ledger.accountants if entry.epsilon is not None},
        neighbouring=NeighboringRelation[ledger.neighbouring.name],
        delta=delta,
        steps=total_steps,
        risk=ledger.risk,
        best=best,
    )


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
    """Noise multiplier, over the clipping bound, for an epsilon of at most ``epsilon``.

    The epsilon of the result, by the tightest proven bound, is between .998 times ``epsilon`` and
    ``epsilon``.

    Args:
        epsilon: target, above 0.
        examples: N, private examples to train on.
        batch: expected examples of a step.
        delta: delta of the guarantee; it should be below 1/N.
        epochs: passes over the examples; or ``steps``.
        steps: steps of the training; or ``epochs``.
        sampling: as in `epsilon`, which gives the neighbouring relation of each.
        participations: batches of an epoch that an example is in; more than 1 with 'allocation' only.

    Returns:
        Standard deviation of the noise on a step's sum over the clipping bound C of each example's gradient.

    Raises:
        UserError: a value is not allowed; the message names it and the allowed values.
    """

    def settings_at(noise: float) -> AccountSettings:
        return dpsgd_settings(
            noise, examples=examples, batch=batch, epochs=epochs, steps=steps, delta=delta,
            sampling=sampling, participations=participations,
        )  # fmt: skip

    def spending_at(noise: float) -> SampledGaussian:
        return spending_of(settings_at(noise))

    return least_noise(epsilon, delta, settings_at(1.0).total_steps, spending_at)
