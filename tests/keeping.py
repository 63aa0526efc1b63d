"""Keeps a made-up record as training, measuring and accounting would: in three files."""

from pathlib import Path

from pipeline.results import records
from pipeline.results.records import Entry, Evaluated, Evaluation, Ledgers, Record, Run, Trained

MEASURED_BY = "made up"


def keep(record: Record, root: Path) -> None:
    """Write a row's run, evaluation and ledgers, without weights; of an account its ledgers alone."""
    made = record.provenance
    account = record.method == records.ACCOUNTING
    entries = tuple(
        Entry(
            level=one.level,
            seed=one.seed,
            ledger=one.ledger,
            settings=one.settings if account else {},
            metrics=one.metrics if account else {},
        )
        for one in record.replicas
    )
    ledgers = Ledgers(
        row=record.row, config=made.config, code=made.code, versions=made.versions, replicas=entries
    )
    records.write(ledgers, root)
    if account:
        return
    trained = tuple(
        Trained(
            level=one.level,
            seed=one.seed,
            settings=one.settings,
            steps=one.ledger.steps,
            spending=None,
            delta=one.ledger.delta,
            claimed_by=one.ledger.claimed_by,
            broken=one.ledger.reasons,
            uncounted=one.ledger.uncounted,
            protects=one.ledger.protects,
            weights=None,
            seconds=one.seconds,
            started=one.started,
            ended=one.ended,
            origin=one.origin,
        )
        for one in record.replicas
    )
    run = Run(
        row=record.row,
        model=record.model,
        method=record.method,
        data=record.data,
        replicas=trained,
        origins=record.origins,
        history=record.history,
    )
    records.write(run, root)
    measured = tuple(
        Evaluated(level=one.level, seed=one.seed, weights=None, code=MEASURED_BY, metrics=one.metrics)
        for one in record.replicas
    )
    records.write(Evaluation(row=record.row, replicas=measured), root)
