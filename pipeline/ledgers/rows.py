"""Ledgers of a row, from its training records, and of an account, from its settings alone.

Neither weights nor data are needed. An account is a training that is only described, under `accounts` in
params.yaml.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import isfinite
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any

from pydantic import TypeAdapter

from dprepro.accountants.bounds import bounds_of
from dprepro.accountants.rdp import (
    classic_epsilon,
    renyi_divergence,
    signal_to_noise,
    tan_divergence,
    tan_epsilon,
)
from dprepro.accountants.records import AccountSettings, up
from dprepro.pipeline.files import digest_json
from dprepro.pipeline.identity.provenance import versions
from dprepro.pipeline.ledgers.composition import row_composition
from dprepro.pipeline.ledgers.declared import check_spending
from dprepro.pipeline.ledgers.ledger import ledger_of, make_ledger
from dprepro.pipeline.methods.spending import Statement, statement
from dprepro.pipeline.params import Settings, pick
from dprepro.pipeline.params.own import OWN, OwnTable
from dprepro.pipeline.results import records
from dprepro.pipeline.results.schema import LedgerEntry, Ledgers, RowTrainings, TrainingKey, TrainingRecord

# fields of a training that decide its ledger
DECISIVE = {
    *("settings", "steps", "spending", "delta", "claimed_by", "broken", "not_covered", "protects", "noise"),
    "isolation",
}


def row_ledgers(key: str, settings: Settings, root: Path = Path()) -> Path:
    """Write the ledgers of a row's trainings, and return their path.

    Raises:
        UserError: the row or its run doesn't exist, or a recorded guarantee differs from the declared one.
    """
    row = settings.row(key)
    run = records.require_run(key, root)
    check_spending(run, settings)
    ledgers = Ledgers(
        row=key,
        config=digest_json(row.search),
        versions=versions(),
        entries=tuple(entries(run, row.search, settings, history_steps(run), root)),
        composition=row_composition(run, row.search, root),
    )
    return records.write(ledgers, root)


def history_steps(run: RowTrainings) -> dict[TrainingKey, set[int]]:
    """Steps in the curves of each training, after which its ledger reports the epsilon spent so far."""
    return {
        training.key: {step for points in training.curves.values() for step, *_ in points}
        for training in run.trainings
    }


def entries(
    run: RowTrainings,
    search: str | None,
    settings: Settings,
    steps: Mapping[tuple[str, int], Iterable[int]] = MappingProxyType({}),
    root: Path = Path(),
    others: Sequence[ModuleType] | None = None,
) -> list[LedgerEntry]:
    """Ledgers of the trainings: an entry for those of a level with equal privacy, in the run's order.

    Args:
        run: the row's recorded trainings.
        search: name of the row's search.
        settings: params.yaml.
        steps: for (level, seed) of a training, steps after which its ledger reports the epsilon spent so far.
        root: folder of the searches' records.
        others: further accountants, as in `make_ledger`.
    """
    # searches whose records name the row, besides its own search
    others_named = (name for name in records.searches_of(root).get(run.row, ()) if name != search)
    unlinked = [statement("unlinked_search", search=name) for name in others_named]
    alike: dict[str, list[TrainingRecord]] = {}
    for training in run.trainings:
        about = [training.level, sorted(steps.get(training.key, ())), [*_uses(run, training, settings)]]
        decisive = (
            training.model_dump_json(include=DECISIVE) + TypeAdapter(list[Any]).dump_json(about).decode()
        )
        alike.setdefault(f"{training.origin.reproducible} {decisive}", []).append(training)
    return [
        LedgerEntry(
            level=first.level,
            seeds=(first.seed, *(each.seed for each in others_alike)),
            ledger=ledger_of(
                first,
                search,
                sorted(steps.get(first.key, ())),
                [*unlinked, *_uses(run, first, settings)],
                others,
            ),
        )
        for first, *others_alike in alike.values()
    ]


def _uses(run: RowTrainings, training: TrainingRecord, settings: Settings) -> Iterator[Statement]:
    """Uses of private data by a row and its data set, outside the trained mechanism."""
    # replaced trainings used the same examples too
    if len(run.trainings) > 1 or run.replaced:
        yield statement("all_replicas")
    recorded = {use.key for use in training.not_covered}
    if settings.lacks_range(run.data) and "feature_range" not in recorded:  # withdrawn after the training
        yield statement("feature_range")
    if settings.split(run.data).public.count:
        yield statement("passed_over")
    if OWN in training.origin.edition.values():
        declared = isinstance(settings.own.get(settings.split(run.data).raw), OwnTable)
        yield statement("declared_description" if declared else "own_description")


def account(key: str, settings: Settings) -> Path:
    """Write the ledgers of ``accounts.KEY`` of params.yaml, one for each level, and return their path.

    Raises:
        UserError: there is no such account.
    """
    line = pick(settings.accounts, key, "account")
    return records.write(
        Ledgers(
            row=key,
            config=settings.account_digest(key),
            versions=versions(),
            entries=tuple(account_entry(line.level(config), config) for config in line.resolved),
        )
    )


def account_entry(
    level: str, settings: AccountSettings, others: Sequence[ModuleType] | None = None
) -> LedgerEntry:
    """Ledger and metrics of one level; ``others``: further accountants, as in `make_ledger`."""
    spent = settings.spending, settings.total_steps, settings.delta, settings.claimed_by
    ledger = make_ledger(*spent, others=others)
    metrics = {} if ledger.mu is None else {"mu": ledger.mu}
    if settings.claimed_by == "rdp":
        metrics = renyi_metrics(settings)
    described = settings.model_dump(mode="json")
    return LedgerEntry(level=level, seeds=(0,), ledger=ledger, settings=described, metrics=metrics)


def renyi_metrics(settings: AccountSettings) -> dict[str, float]:
    """Numbers in the figures and tables of Sander et al. 2022, and epsilons by other accountants.

    They are finite values by name: `epsilon` by Renyi DP, `epsilon_classic` by Eq. 3, and `epsilon_pld` by
    privacy loss distributions. For Poisson samples also `eta` (Definition 3.1) and `epsilon_tan` (Eq. 4). If
    the settings have an `order`, also the Renyi divergence of all steps at this order: `renyi`, and its
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
