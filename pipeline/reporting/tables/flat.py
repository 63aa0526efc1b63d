"""Every result as a line of a flat table: what was measured, what it buys and what made it.

One writer for the table of all results, the ledger's and each table's own, which differ in lines and columns.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pandas as pd

from pipeline.params import Row
from pipeline.privacy.spending import RELATION_WORDS
from pipeline.reporting import vocabulary, wording
from pipeline.reporting.gather import PaperResult
from pipeline.reporting.judging import severity, verdicts
from pipeline.reporting.judging.values import of_line
from pipeline.reporting.results import Cell, LineResult, Mark, RowResult, TableResult
from pipeline.reporting.statements import words
from pipeline.reporting.tables import released_noise

SUMMARY = (
    "paper", "table", "row", "line", "variant", "level", "data", "method", "metric", "budget", "seeds",
    "ours", "half_width_95", "paper_value", "decides", "verdict", "planned",
    "claimed", "proven", "shown", "delta", "privacy", "why",
)  # fmt: skip
LEDGER = (
    "paper", "row", "level", "claimed", "proven", "shown", "delta", "ledger_verdict", "floating_point",
    "not_covered_at_worst", "privacy", "attack", "attack_shown", "attack_shown_assuming_nothing",
    "attack_proven", "attack_event", "attack_sees", "attack_confidence", "attack_trials", "attack_seconds",
)  # fmt: skip
Entry = dict[str, Any]


def csv(entries: Iterable[Entry], columns: Sequence[str] | None = None) -> str:
    """Lines as text, of these columns alone if they are named."""
    frame = pd.DataFrame(entries, columns=columns).convert_dtypes()  # counts stay whole beside missing ones
    return frame.to_csv(index=False, lineterminator="\n")


def of_papers(papers: Iterable[PaperResult]) -> list[Entry]:
    """Everything that ran, in the order shown."""
    found = (entry for paper in papers for table in paper.tables for entry in of_table(table))
    return [entry for entry in found if entry["status"] == "run"]


def private(entries: Iterable[Entry]) -> list[Entry]:
    """What claims privacy or has some."""
    return [entry for entry in entries if entry["privacy"] != vocabulary.PRIVACY["none"].text]


def of_table(result: TableResult) -> Iterator[Entry]:
    """Each row at each level, run or not, and lines without a row."""
    for line in result.lines:
        for row in line.rows or (None,):
            for level in result.levels:
                yield _entry(result, line, row, level)


def _entry(result: TableResult, line: LineResult, row: RowResult | None, level: str) -> Entry:
    theirs = line.line.values.get(level) if line.line else None
    cell = row.cells.get(level) if row else None
    decides = row is not None and line.decides(row, level)
    value = of_line(line, level) if decides else None
    declared = row.declared if row else None
    return {
        "paper": result.paper,
        "table": result.name.removeprefix(f"{result.paper}-"),
        "line": line.label,
        "row": row.key if row else None,
        "variant": row.variant if row else None,
        "level": level,
        "data": declared.data if isinstance(declared, Row) else None,
        "method": declared.method if isinstance(declared, Row) else None,
        "metric": result.table.metric,
        "budget": row.budget if row and isinstance(declared, Row) else None,
        "status": "run" if cell else wording.NOT_RUN,
        "marks": "; ".join(map(_told, row.marks)) if row else "",
        "paper_value": theirs.value if theirs else None,
        "paper_error": theirs.error if theirs else None,
        "paper_words": theirs.words if theirs else None,
        "paper_examples": result.table.examples,
        "margin": result.table.margin_at(theirs) if theirs else None,
        "decides": decides,
        "verdict": value.words if value else None,
        **_measured(cell),
        **_further(result, row, level),
        **_spent(cell, row),
        **_made(row if cell else None),
    }


def _told(mark: Mark) -> str:
    return f"{mark.words} ({mark.detail})" if mark.detail else mark.words


def _measured(cell: Cell | None) -> Entry:
    exact = cell is not None and cell.mean.exact
    return {
        "ours": round(cell.mean.value, 9) if cell else None,
        "half_width_95": cell.mean.half if cell else None,
        "seeds": cell.mean.n if cell and not exact else None,
        "planned": cell.planned if cell else None,
        "draws_std": cell.draws if cell else None,
        "converged": cell.converged if cell and not exact else None,
        "difference": cell.difference if cell else None,
        "caveat": cell.caveat if cell else None,
    }


def _further(result: TableResult, row: RowResult | None, level: str) -> Entry:
    """The table's further metrics."""
    numbers: Entry = {}
    for metric in result.table.also:
        cell = row.also[metric].get(level) if row else None
        numbers[metric] = cell.mean.value if cell else None
        numbers[f"{metric}_half_width_95"] = cell.mean.half if cell else None
    return numbers


def _spent(cell: Cell | None, row: RowResult | None) -> Entry:
    """The ledger of the level's worst replica, and the attack that came closest to it, or beyond."""
    ledger = cell.guarantee.ledger if cell else None
    judged = verdicts.of_cell(cell, row.record) if cell and row and row.record else None
    attack = judged.attack if judged else None
    uses = severity.of_cell(cell, row.record) if cell and row and row.record else []
    opinions = (
        f"{one.accountant}: {'none' if one.epsilon is None else format(one.epsilon, '.6g')}"
        + (f" ({one.note})" if one.note else "")
        for one in (ledger.opinions if ledger else ())
    )
    return {
        "privacy": vocabulary.PRIVACY[cell.guarantee.state].text if cell else None,
        "why": cell.guarantee.reason if cell else None,
        "ledger_verdict": judged.name if judged else None,
        "floating_point": verdicts.arithmetic(cell.replicas[0].attacks) if judged and cell else None,
        "claimed": ledger.claimed if ledger else None,
        "claimed_by": ledger.claimed_by if ledger else None,
        "proven": ledger.accounted if ledger else None,
        "accountant": ledger.accountant if ledger else None,
        "shown": ledger.shown if ledger else None,
        "shown_by": words(ledger.shown_by) if ledger and ledger.shown_by else None,
        "mu_clt": ledger.mu if ledger else None,
        "opinions": "; ".join(opinions),
        "attack": attack.attack if attack else None,
        "attack_shown": attack.largest if attack else None,
        "attack_shown_assuming_nothing": attack.epsilon if attack else None,
        "attack_proven": attack.accounted if attack else None,
        "attack_event": attack.event if attack else None,
        "attack_sees": attack.sees if attack else None,
        "attack_confidence": attack.confidence if attack else None,
        "attack_trials": sum(attack.trials) if attack else None,
        "attack_seconds": attack.seconds if attack else None,
        "delta": ledger.delta if ledger else None,
        "unit": ledger.unit if ledger else None,
        "neighbouring": RELATION_WORDS[ledger.neighbouring] if ledger else None,
        "noise_multiplier": ledger.noise_multiplier if ledger else None,
        "sampling": ledger.sampling if ledger else None,
        "sampling_rate": ledger.sampling_rate if ledger else None,
        "steps": ledger.steps if ledger else None,
        "not_covered": "; ".join(f"{vocabulary.SEVERITIES[use.severity].text}: {use.words}" for use in uses),
        "not_covered_at_worst": severity.at_worst(uses),
        "releases": "; ".join(map(released_noise.text, ledger.releases)) if ledger else "",
        "protects": words(ledger.protects) if ledger and ledger.protects else None,
    }


def _made(row: RowResult | None) -> Entry:
    record = row.record if row else None
    provenance = record.provenance if record else None
    editions = sorted(provenance.edition.items()) if provenance else ()
    return {
        "editions": "; ".join(f"{raw}: {name}" for raw, name in editions),
        "examples": row.examples if row else None,
        "device": provenance.device if provenance else None,
        "revision": provenance.revision if provenance else None,
        "record": record.digest() if record else None,
    }
