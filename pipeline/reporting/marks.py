"""What a reader must know before comparing a row with the paper: its budget, its data and what made it."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path

from pipeline.identity import provenance
from pipeline.identity.standing import Standing, measured_otherwise
from pipeline.params import Account, Row, Settings
from pipeline.reporting import budgets
from pipeline.reporting.printed import Table
from pipeline.reporting.results import Mark
from pipeline.results import records
from pipeline.results.schema import Record

OFFICIAL, SYNTHETIC = "official", "synthetic"
# A row trained on a smaller share of the paper's examples decides nothing.
ENOUGH_EXAMPLES = 0.9
# shown rather than hidden: the numbers are real, but of other settings than those declared now
SETTINGS_CHANGED = Mark("settings have changed since this run", incomparable=True, inconclusive=True)


@cache
def _is_lost(revision: str) -> bool:
    """`provenance.is_lost`, which asks git, once a commit."""
    return provenance.is_lost(revision)


def of_declared(key: str, row: Row | Account, settings: Settings, table: Table) -> Iterator[Mark]:
    """What params.yaml says of it: a training shorter than the paper's, or a simulation of another row."""
    if not isinstance(row, Row):
        return
    budget = budgets.of_row(row, table)
    if budget != "full":
        short = budget == "reduced"
        words = budgets.share(key, row, settings, table, budget)
        yield Mark(words, inconclusive=short, training=short, budget=True)
    if row.simulates is not None:
        yield Mark(f"simulation of {row.simulates}, whose privacy it does not have")


def of_record(record: Record, table: Table) -> Iterator[Mark]:
    """The data that any of its replicas was trained on, and whether its noise was seeded."""
    editions = sorted({edition for made in record.origins for edition in made.edition.items()})
    if any(edition == SYNTHETIC for _, edition in editions):
        yield Mark("synthetic data", incomparable=True, inconclusive=True)
    for raw, edition in editions:
        if edition not in (OFFICIAL, SYNTHETIC):
            yield Mark(f"{raw}: {edition} edition")
    examples = min(made.examples for made in record.origins)
    if table.examples is not None and examples < table.examples:
        few = examples < ENOUGH_EXAMPLES * table.examples
        words = f"trained on {examples:,} of {table.examples:,} examples"
        yield Mark(words, inconclusive=few, fewer_data=few, examples=True)
    private = any(replica.ledger.event is not None for replica in record.replicas)
    if any(made.reproducible for made in record.origins) and private:
        yield Mark("noise seeded: no guarantee", seeded=True)


def of_staleness(record: Record, row: Row | Account, settings: Settings, root: Path) -> Iterator[Mark]:
    """Everything that made its numbers and isn't here any more: settings, or versions of what computes."""
    if not isinstance(row, Row):
        if record.provenance.config != settings.account_digest(record.row):
            yield SETTINGS_CHANGED
        return
    run, evaluation = records.read_run(record.row, root), records.read_evaluation(record.row, root)
    if run is None or evaluation is None:
        return
    stands = Standing(row, None)
    if any(stands.misdeclared(run, replica) for replica in run.replicas):
        yield SETTINGS_CHANGED
    if any(stands.other_version(run, replica) for replica in run.replicas):
        yield Mark("trained by other code")
    if any(_is_lost(origin.revision) for origin in run.origins if origin.revision):
        order = ", and the order of plan and training is not verifiable" if row.plan else ""
        yield Mark(f"trained by a commit that is not in this repository{order}")
    if any(measured_otherwise(replica) for replica in evaluation.replicas):
        yield Mark("measured by other code")
