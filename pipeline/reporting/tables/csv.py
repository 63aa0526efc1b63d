"""CSV files: a line per row and level, with its result, ledger and origin; a line per contrast."""

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import Any, TypeVar

import pandas as pd

from pipeline.privacy.sampled_gaussian import RELATION_WORDS
from pipeline.reporting import vocabulary, wording
from pipeline.reporting.facts import Fact
from pipeline.reporting.judging import severity
from pipeline.reporting.judging.contrasts import PrintedContrast
from pipeline.reporting.prose.remarks import release_line
from pipeline.reporting.vocabulary import words
from pipeline.results.schema import AccountantEpsilon

SUMMARY = (
    "paper", "table", "row", "line", "variant", "level", "raw", "data", "method", "metric", "metric_unit",
    "budget", "seeds", "ours", "half_width_95", "paper_value", "paper_error", "decides", "verdict",
    "margin", "difference_half_width_95", "verdict_by_table_margin", "strength", "unfair", "evidence",
    "claimed", "proven", "shown", "delta", "privacy", "why",
)  # fmt: skip
LEDGER = (
    "paper", "row", "level", "claimed", "proven", "shown", "delta", "ledger_verdict", "floating_point",
    "not_covered_at_worst", "privacy", "attack", "attack_shown", "attack_shown_assuming_nothing",
    "attack_proven", "attack_event", "attack_sees", "attack_confidence", "attack_trials", "attack_seconds",
)  # fmt: skip
Columns = dict[str, Any]
T = TypeVar("T")


def facts_csv(facts: Iterable[Fact], columns: Sequence[str] | None = None) -> str:
    """CSV text of facts, a line per row and level; results by further metrics are columns of that line.

    Args:
        facts: the table's own metric first, of each row and level.
        columns: written ones; None: all.
    """
    groups = groupby(facts, key=lambda fact: (fact.table.name, id(fact.line), id(fact.row), fact.level))
    return _text((_columns(*group) for _, group in groups), columns)


def contrasts_csv(contrasts: Iterable[PrintedContrast]) -> str:
    """CSV text of contrasts, a line each."""
    return _text(map(_contrast, contrasts))


def _text(lines: Iterable[Columns], columns: Sequence[str] | None = None) -> str:
    # counts stay whole beside missing ones
    frame = pd.DataFrame(list(lines), columns=columns).convert_dtypes()
    return frame.to_csv(index=False, lineterminator="\n")


def _of(source: T | None, **columns: Callable[[T], Any]) -> Columns:
    """Columns read from a source; each is empty without the source."""
    return {name: None if source is None else read(source) for name, read in columns.items()}


def _columns(fact: Fact, *further: Fact) -> Columns:
    """Columns of a row and level."""
    columns = _declared(fact) | _judged(fact) | _measured(fact)
    for other in further:
        mean = other.cell.mean if other.cell else None
        columns[other.metric] = mean.value if mean else None
        columns[f"{other.metric}_half_width_95"] = mean.half if mean else None
    return columns | _ledger(fact) | _attack(fact) | _origin(fact)


def _declared(fact: Fact) -> Columns:
    table, row, declared = fact.table, fact.row, fact.declared
    return {
        "paper": table.paper,
        "table": table.key,
        "line": fact.line.label,
        **_of(row, row=lambda row: row.key, variant=lambda row: row.variant, raw=lambda row: row.raw),
        "level": fact.level,
        **_of(declared, data=lambda declared: declared.data, method=lambda declared: declared.method),
        "metric": table.table.metric,
        "metric_unit": table.table.unit,
        "budget": row.budget if row and declared else None,
        "status": "run" if fact.cell else wording.NOT_RUN,
        "marks": "; ".join(caveat.words for caveat in row.caveats) if row else "",
        **_of(
            fact.printed,
            paper_value=lambda printed: printed.value,
            paper_error=lambda printed: printed.error,
            paper_words=lambda printed: printed.words,
        ),
        "paper_examples": table.table.examples,
        "decides": fact.decides,
    }


def _judged(fact: Fact) -> Columns:
    """Verdict on the printed value that the row decides, with its margin and interval."""
    value = fact.value if fact.decides else None
    return {
        "verdict": value.words if value else None,
        **_of(
            value if value and value.verdict else None,
            margin=lambda value: value.margin,
            difference_half_width_95=lambda value: None if value.away is None else value.half,
            verdict_by_table_margin=lambda value: value.by_table_margin or value.words,
        ),
        **_of(value, strength=lambda value: value.strength, unfair=lambda value: "; ".join(value.unfair)),
    }


def _measured(fact: Fact) -> Columns:
    cell = fact.cell
    trained = cell if cell and not cell.mean.exact else None
    return {
        **_of(cell, ours=lambda cell: round(cell.mean.value, 9), half_width_95=lambda cell: cell.mean.half),
        "seeds": trained.mean.n if trained else None,
        "evidence": fact.evidence or None,
        "draws_std": cell.draws if cell else None,
        "converged": trained.converged if trained else None,
        **_of(cell, difference=lambda cell: cell.difference, caveat=lambda cell: cell.caveat),
    }


def _ledger(fact: Fact) -> Columns:
    """Ledger of the level's worst replica."""
    guarantee = fact.cell.guarantee if fact.cell else None
    return {
        "privacy": fact.privacy or None,
        **_of(
            guarantee,
            why=lambda guarantee: guarantee.reason,
        ),
        **_of(
            fact.verdict,
            ledger_verdict=lambda verdict: verdict.name,
            floating_point=lambda verdict: verdict.floating_point,
        ),
        **_of(
            guarantee.ledger if guarantee else None,
            claimed=lambda ledger: ledger.claimed,
            claimed_by=lambda ledger: ledger.claimed_by,
            proven=lambda ledger: ledger.epsilon_upper,
            accountant=lambda ledger: ledger.accountant,
            shown=lambda ledger: ledger.epsilon_lower,
            shown_by=lambda ledger: words(ledger.epsilon_lower_by) if ledger.epsilon_lower_by else None,
            mu_clt=lambda ledger: ledger.mu,
            accountants=lambda ledger: "; ".join(map(_accountant, ledger.accountants)),
        ),
    }


def _attack(fact: Fact) -> Columns:
    """Attack that came closest to the bound, and the terms of the bound."""
    ledger = fact.cell.guarantee.ledger if fact.cell else None
    return {
        **_of(
            fact.verdict.attack if fact.verdict else None,
            attack=lambda attack: attack.attack,
            attack_shown=lambda attack: attack.largest,
            attack_shown_assuming_nothing=lambda attack: attack.epsilon,
            attack_proven=lambda attack: attack.epsilon_upper,
            attack_event=lambda attack: attack.event,
            attack_sees=lambda attack: attack.sees,
            attack_confidence=lambda attack: attack.confidence,
            attack_trials=lambda attack: sum(attack.trials),
            attack_seconds=lambda attack: attack.seconds,
        ),
        **_of(
            ledger,
            delta=lambda ledger: ledger.delta,
            unit=lambda ledger: ledger.unit,
            neighbouring=lambda ledger: RELATION_WORDS[ledger.neighbouring],
            noise_multiplier=lambda ledger: ledger.noise_multiplier,
            sampling=lambda ledger: ledger.sampling,
            sampling_rate=lambda ledger: ledger.sampling_rate,
            steps=lambda ledger: ledger.steps,
        ),
        "not_covered": "; ".join(
            f"{vocabulary.SEVERITIES[use.severity].text}: {use.words}" for use in fact.not_covered
        ),
        "not_covered_at_worst": severity.at_worst(severity.specific(fact.not_covered)),
        **_of(
            ledger,
            releases=lambda ledger: "; ".join(map(release_line, ledger.releases)),
            protects=lambda ledger: words(ledger.protects) if ledger.protects else None,
        ),
    }


def _accountant(result: AccountantEpsilon) -> str:
    epsilon = "none" if result.epsilon is None else format(result.epsilon, ".6g")
    return f"{result.accountant}: {epsilon}" + (f" ({result.note})" if result.note else "")


def _origin(fact: Fact) -> Columns:
    """Data and code behind the numbers."""
    row = fact.row if fact.cell else None
    record = row.record if row else None
    provenance = record.provenance if record else None
    editions = sorted(provenance.edition.items()) if provenance else ()
    return {
        "editions": "; ".join(f"{raw}: {name}" for raw, name in editions),
        "examples": row.examples if row else None,
        **_of(provenance, device=lambda provenance: provenance.device, revision=lambda made: made.revision),
        "record": record.digest() if record else None,
    }


def _contrast(contrast: PrintedContrast) -> Columns:
    columns: Columns = {"paper": contrast.result.paper, "table": contrast.result.key}
    for name, side in (("left", contrast.left), ("right", contrast.right)):
        columns |= {
            f"{name}_line": side.line.key,
            f"{name}_level": side.level,
            f"{name}_row": side.row.key if side.row else None,
            f"{name}_paper_value": side.printed,
            f"{name}_paper_error": side.error,
        }
    return columns | {
        "paper_difference": round(contrast.theirs, 9),
        "difference": round(contrast.ours.value, 9) if contrast.ours else None,
        "half_width_95": contrast.half if contrast.ours else None,
        "margin": contrast.margin if contrast.ours else None,
        "status": contrast.status,
        "why": contrast.why or None,
        "argued": contrast.argued,
        "planned": contrast.planned if contrast.ours else None,
        "on_part_of_the_data": contrast.fewer_data if contrast.ours else None,
    }
