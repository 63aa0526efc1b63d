"""Caveats of a row: its training budget, its data, and changes since its training."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from dprepro.pipeline.identity import provenance
from dprepro.pipeline.identity.validity import reason_invalid, reason_unmeasured
from dprepro.pipeline.params import Account, Row, Settings
from dprepro.pipeline.params.papers import Table
from dprepro.pipeline.results import records
from dprepro.pipeline.results.schema import Record

Budget = Literal["full", "own", "reduced"]
OFFICIAL = "official"
# data that stand in for the paper's, by edition
STAND_INS = {"digits": "digits of 8 x 8 pixels instead of MNIST", "synthetic": "synthetic data"}
ENOUGH_EXAMPLES = 0.9  # a smaller share of the paper's examples is a handicap
_is_lost = cache(provenance.is_lost)  # it runs git


@dataclass(frozen=True)
class Caveat:
    """A fact that a reader must know before comparing a row with the paper."""

    words: str
    incomparable: bool = False  # the row is no reproduction, so it isn't judged
    fewer_data: bool = False  # much less data than the paper's, a handicap


# The numbers are shown, not hidden: they are real, but their settings differ from the declared ones.
SETTINGS_CHANGED = Caveat("settings have changed since this run", incomparable=True)


def budget_of(row: Row | Account, table: Table) -> Budget:
    """Training budget that a row declares; 'own' instead of 'full' if the paper gives no budget."""
    if not isinstance(row, Row):
        return "full"
    ours = row.budget == "full" and not table.own and not table.budget
    return "own" if ours else row.budget


def declared_caveats(row: Row | Account) -> Iterator[Caveat]:
    """Yield a caveat if the row simulates another."""
    if isinstance(row, Row) and row.simulates is not None:
        yield Caveat(f"simulates {row.simulates} with less noise; the ε of {row.simulates} does not apply")


def record_caveats(record: Record, table: Table) -> Iterator[Caveat]:
    """Yield caveats from the record: on the training data, and on seeded noise."""
    editions = sorted({edition for origin in record.origins for edition in origin.edition.items()})
    for edition, words in STAND_INS.items():
        if any(edition == other for _, other in editions):
            yield Caveat(words, incomparable=True)
    for raw, edition in editions:
        if edition not in (OFFICIAL, *STAND_INS):
            yield Caveat(f"{raw}: {edition} edition")
    examples = min(origin.examples for origin in record.origins)
    if table.examples is not None and examples < table.examples:
        few = examples < ENOUGH_EXAMPLES * table.examples
        words = f"trained on {examples:,} of {table.examples:,} examples"
        yield Caveat(words, fewer_data=few)
    private = any(training.ledger.event is not None for training in record.trainings)
    if any(origin.reproducible for origin in record.origins) and private:
        yield Caveat("noise seeded: no guarantee")


def stale_caveats(record: Record, row: Row | Account, settings: Settings, root: Path) -> Iterator[Caveat]:
    """Yield caveats on changes since the training: other settings or code, or a commit that git lacks.

    One more is for a planned row if no commit shows that its plan came first.
    """
    if not isinstance(row, Row):
        if record.provenance.config != settings.account_digest(record.row):
            yield SETTINGS_CHANGED
        return
    run, evaluation = records.read_run(record.row, root), records.read_evaluation(record.row, root)
    if run is None or evaluation is None:
        return
    reasons = {reason_invalid(training, row, None, None) for training in run.trainings}
    if "settings" in reasons:
        yield SETTINGS_CHANGED
    if reasons & {"method version", "model version"}:
        yield Caveat("trained by other code")
    if any(_is_lost(origin.revision) for origin in run.origins if origin.revision):
        order = "; git can't show that the plan came first" if row.plan else ""
        yield Caveat(f"trained with code of a commit that is not in this repository{order}")
    if row.plan and not (provenance.is_checkout_here() and all(origin.revision for origin in run.origins)):
        yield Caveat("no commit of params.yaml is recorded; git can't show that the plan came first")
    measured = {training.key: training for training in evaluation.trainings}
    if any(reason_unmeasured(measured.get(each.key), each) == "measuring version" for each in run.trainings):
        yield Caveat("measured by other code")
