"""Ledgers of trainings that are only described, under `accounts` in params.yaml."""

from math import isfinite
from pathlib import Path

from dprepro.accountants.bounds import bounds_of
from dprepro.accountants.rdp import (
    classic_epsilon,
    renyi_divergence,
    signal_to_noise,
    tan_divergence,
    tan_epsilon,
)
from dprepro.accountants.records import AccountSettings, up
from dprepro.pipeline.identity.provenance import versions
from dprepro.pipeline.ledgers.ledger import make_ledger
from dprepro.pipeline.params import Settings, pick
from dprepro.pipeline.results import records
from dprepro.pipeline.results.schema import LedgerEntry, Ledgers


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
            entries=tuple(entry(line.level(config), config) for config in line.resolved),
        ),
        root,
    )


def entry(level: str, settings: AccountSettings) -> LedgerEntry:
    """Ledger and metrics of one level."""
    ledger = make_ledger(settings.spending, settings.total_steps, settings.delta, settings.claimed_by)
    metrics = {} if ledger.mu is None else {"mu": ledger.mu}
    if settings.claimed_by == "rdp":
        metrics = renyi_metrics(settings)
    described = settings.model_dump(mode="json")
    return LedgerEntry(level=level, seeds=(0,), ledger=ledger, settings=described, metrics=metrics)


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
    spending, steps = settings.spending, settings.total_steps
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
