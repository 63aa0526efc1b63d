"""Ledgers of trainings that are only described, under `accounts` in params.yaml."""

from math import ceil, isfinite, sqrt
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from dprepro.errors import UserError
from dprepro.pipeline.identity.provenance import versions
from dprepro.pipeline.ledgers.ledger import bounds_of, make_ledger
from dprepro.pipeline.ledgers.precision import up
from dprepro.pipeline.params import Settings, pick
from dprepro.pipeline.results import records
from dprepro.pipeline.results.schema import Entry, Ledgers
from dprepro.privacy.account_settings import AccountSettings
from dprepro.privacy.accounting import classic_epsilon, renyi_divergence
from dprepro.privacy.sampled_gaussian import SampledGaussian, relation_of, sensitivity
from dprepro.privacy.total_noise import signal_to_noise, tan_divergence, tan_epsilon
from dprepro.problems import problem_lines


def account(key: str, settings: Settings, root: Path = Path()) -> Path:
    """Write the ledgers of ``accounts.KEY`` of params.yaml, one for each level.

    Args:
        key: a key of ``accounts``.
        settings: all settings of params.yaml.
        root: folder of params.yaml.

    Returns:
        Path of the ledgers.

    Raises:
        UserError: there is no such account.
    """
    line = pick(settings.accounts, key, "account")
    return records.write(
        Ledgers(
            row=key,
            config=settings.account_digest(key),
            versions=versions(),
            replicas=tuple(entry(line.level(config), config) for config in line.resolved),
        ),
        root,
    )


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


def spending_of(settings: AccountSettings) -> SampledGaussian:
    """Spending of a step.

    The L `parts` of a gradient, each with noise multiplier z, count as one part with noise multiplier
    z / sqrt(L) (Nguyen et al. 2023, section 3.2).

    Args:
        settings: settings of the account.

    Returns:
        The spending.
    """
    return SampledGaussian(
        sampling=settings.sampling,
        noise_multiplier=settings.noise_multiplier / sqrt(settings.parts),
        examples=settings.examples,
        batch=settings.batch,
        sets=settings.sets or 1,
        participations=settings.participations,
    )


def entry(level: str, settings: AccountSettings) -> Entry:
    """Ledger and metrics of one level."""
    ledger = make_ledger(spending_of(settings), settings.total_steps, settings.delta, settings.claimed_by)
    metrics = {} if ledger.mu is None else {"mu": ledger.mu}
    if settings.claimed_by == "rdp":
        metrics = renyi_metrics(settings)
    described = settings.model_dump(mode="json")
    return Entry(level=level, seed=0, ledger=ledger, settings=described, metrics=metrics)


def renyi_metrics(settings: AccountSettings) -> dict[str, float]:
    """Numbers in the figures and tables of Sander et al. 2022, and epsilons by other accountants.

    Args:
        settings: settings of the account.

    Returns:
        Finite values by name: `epsilon` by Renyi DP, `epsilon_classic` by Eq. 3, and `epsilon_pld` by privacy
        loss distributions. For Poisson samples also `eta` (Definition 3.1) and `epsilon_tan` (Eq. 4). If the
        settings have an `order`, also the Renyi divergence of all steps at this order: `renyi`, and its
        approximation by TAN, `renyi_tan`.
    """
    spending, steps = spending_of(settings), settings.total_steps
    bounds, _ = bounds_of(spending, steps, settings.delta)
    metrics = {
        "epsilon": bounds["rdp"].epsilon,
        "epsilon_classic": classic_epsilon(spending, steps, settings.delta),
        "epsilon_pld": bounds["pld"].epsilon,
    }
    if settings.sampling == "poisson":
        eta = signal_to_noise(spending, steps)
        metrics |= {"eta": eta, "epsilon_tan": tan_epsilon(eta, settings.delta)}
        if settings.order is not None:
            metrics["renyi"] = renyi_divergence(spending, steps, settings.order)
            metrics["renyi_tan"] = tan_divergence(eta, settings.order)
    return {name: up(value) for name, value in metrics.items() if value is not None and isfinite(value)}
