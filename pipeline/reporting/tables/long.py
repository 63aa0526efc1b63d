"""A filled table for computing: a line for each row and level, with the whole ledger and provenance."""

from typing import Any

import pandas as pd

from pipeline.privacy.spending import RELATION_WORDS
from pipeline.reporting import wording
from pipeline.reporting.judging.verdicts import closeness, on_mechanism
from pipeline.reporting.results import Cell, LineResult, Mark, RowResult, TableResult
from pipeline.reporting.statements import joined, words
from pipeline.reporting.tables import released_noise


def long(result: TableResult) -> pd.DataFrame:
    """One line for each row and level, with the whole ledger and provenance."""
    return pd.DataFrame(
        [
            _entry(result, line, row, level)
            for line in result.lines
            for row in line.rows or (None,)
            for level in result.levels
        ],
        columns=list(_entry(result, None, None, "")),
    ).convert_dtypes()  # counts stay whole numbers beside missing ones


def csv(result: TableResult) -> str:
    """The long table."""
    return long(result).to_csv(index=False, lineterminator="\n")


def _entry(result: TableResult, line: LineResult | None, row: RowResult | None, level: str) -> dict[str, Any]:
    theirs = line.line.values.get(level) if line and line.line else None
    cell = row.cells.get(level) if row else None
    return {
        "paper": result.paper,
        "table": result.key,
        "line": line.label if line else None,
        "row": row.key if row else None,
        "variant": row.variant if row else None,
        "level": level,
        "status": "run" if cell else wording.NOT_RUN,
        "marks": "; ".join(map(_told, row.marks)) if row else "",
        "paper_value": theirs.value if theirs else None,
        "paper_error": theirs.error if theirs else None,
        "paper_words": theirs.words if theirs else None,
        "paper_examples": result.table.examples,
        **_measured(cell),
        **_further(result, row, level),
        **_spent(cell),
        **_made(row if cell else None),
    }


def _told(mark: Mark) -> str:
    return f"{mark.words} ({mark.detail})" if mark.detail else mark.words


def _measured(cell: Cell | None) -> dict[str, Any]:
    return {
        "mean": cell.mean.value if cell else None,
        "half_width_95": cell.mean.half if cell else None,
        "seeds": cell.mean.n if cell else None,
        "draws_std": cell.draws if cell else None,
        "converged": cell.converged if cell else None,
        "difference": cell.difference if cell else None,
        "agreement": cell.agreement if cell else None,
        "caveat": cell.caveat if cell else None,
    }


def _further(result: TableResult, row: RowResult | None, level: str) -> dict[str, Any]:
    """The table's further metrics."""
    numbers: dict[str, Any] = {}
    for metric in result.table.also:
        cell = row.also[metric].get(level) if row else None
        numbers[metric] = cell.mean.value if cell else None
        numbers[f"{metric}_half_width_95"] = cell.mean.half if cell else None
    return numbers


def _spent(cell: Cell | None) -> dict[str, Any]:
    """The ledger of the level's worst replica."""
    ledger = cell.guarantee.ledger if cell else None
    opinions = (
        f"{one.accountant}: {'none' if one.epsilon is None else format(one.epsilon, '.6g')}"
        + (f" ({one.note})" if one.note else "")
        for one in (ledger.opinions if ledger else ())
    )
    return {
        "guarantee": wording.VERDICTS[cell.guarantee.state] if cell else None,
        "reason": cell.guarantee.reason if cell else None,
        "claimed": ledger.claimed if ledger else None,
        "claimed_by": ledger.claimed_by if ledger else None,
        "accounted": ledger.accounted if ledger else None,
        "accountant": ledger.accountant if ledger else None,
        "shown": ledger.shown if ledger else None,
        "shown_by": words(ledger.shown_by) if ledger and ledger.shown_by else None,
        "mu_clt": ledger.mu if ledger else None,
        "opinions": "; ".join(opinions),
        **_audited(cell),
        "delta": ledger.delta if ledger else None,
        "unit": ledger.unit if ledger else None,
        "neighbouring": RELATION_WORDS[ledger.neighbouring] if ledger else None,
        "noise_multiplier": ledger.noise_multiplier if ledger else None,
        "sampling": ledger.sampling if ledger else None,
        "sampling_rate": ledger.sampling_rate if ledger else None,
        "steps": ledger.steps if ledger else None,
        "uncounted": (joined(ledger.uncounted) or "") if ledger else "",
        "releases": "; ".join(map(released_noise.text, ledger.releases)) if ledger else "",
        "protects": words(ledger.protects) if ledger and ledger.protects else None,
    }


def _audited(cell: Cell | None) -> dict[str, Any]:
    """The attack that came closest to what was accounted for it, or beyond."""
    attacks = on_mechanism(cell.replicas[0].attacks) if cell else []
    closest = max(attacks, key=closeness, default=None)
    return {
        "audited": closest.largest if closest else None,
        "audited_of": closest.accounted if closest else None,
        "attack": closest.attack if closest else None,
    }


def _made(row: RowResult | None) -> dict[str, Any]:
    record = row.record if row else None
    provenance = record.provenance if record else None
    return {
        "budget": record.budget if record else None,
        "editions": "; ".join(f"{raw}: {name}" for raw, name in sorted(provenance.edition.items()))
        if provenance
        else "",
        "examples": row.examples if row else None,
        "device": provenance.device if provenance else None,
        "revision": provenance.revision if provenance else None,
        "record": record.digest() if record else None,
    }
