"""An account: the ledger of a training that is only described, as a record among the others."""

import platform
import sys
import time
from math import sqrt
from pathlib import Path

from pipeline import provenance, records
from pipeline.ledger import make_ledger
from pipeline.method_settings import AccountSettings
from pipeline.privacy.spending import Spending
from pipeline.records import Record
from pipeline.settings import Settings, pick

METHOD = "accounting"
DATA = "none"
CLAIMED_BY = "clt"


def account(key: str, settings: Settings, root: Path = Path()) -> Path:
    """Write the record of ``accounts.KEY`` of params.yaml, one replica a level; returns its path.

    Raises:
        UserError: there is no such account.
    """
    line = pick(settings.accounts, key, "account")
    record = Record(
        row=key,
        paper=line.paper,
        table=line.table,
        label=line.label,
        data=DATA,
        model={},
        method=METHOD,
        budget="full",
        search=None,
        replicas=[_replica(line.level(own), own) for own in line.resolved],
        history=None,
        provenance=_provenance(key, settings),
    )
    return records.write(record, root)


def spending_of(own: AccountSettings) -> Spending:
    """What one step spends: L parts at multiplier z are z / sqrt(L) (Nguyen et al. 2023, section 3.2)."""
    return Spending(
        sampling=own.sampling,
        noise_multiplier=own.noise_multiplier / sqrt(own.parts),
        examples=own.examples,
        batch=own.batch,
        sets=own.sets or 1,
    )


def _replica(level: str, own: AccountSettings) -> records.Replica:
    started = time.time()
    ledger = make_ledger(spending_of(own), own.steps, own.delta, CLAIMED_BY)
    ended = time.time()
    return records.Replica(
        level=level,
        seed=0,
        settings=own.model_dump(mode="json"),
        metrics={} if ledger.mu is None else {"mu": ledger.mu},
        ledger=ledger,
        seconds=round(ended - started, 3),
        started=started,
        ended=ended,
    )


def _provenance(key: str, settings: Settings) -> records.Provenance:
    revision, dirty = provenance.revision()
    return records.Provenance(
        config=settings.account_digest(key),
        code=provenance.account_digest(),
        revision=revision,
        dirty=dirty,
        data={},
        examples=settings.accounts[key].resolved[0].examples,
        edition={},
        versions=provenance.versions(),
        device=f"cpu ({platform.machine()})",
        reproducible=False,
        command=" ".join([Path(sys.argv[0]).name, *sys.argv[1:]]),
    )
