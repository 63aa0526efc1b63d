"""Every result as a line of a flat table: what was measured, what it buys and what made it.

One writer for the table of all results, the ledger's and each table's own, which differ in lines and columns.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas as pd

from pipeline.params import Row
from pipeline.privacy.sampled_gaussian import RELATION_WORDS
from pipeline.reporting import vocabulary, wording
from pipeline.reporting.judging import severity, verdicts
from pipeline.reporting.judging.contrasts import PrintedContrast
from pipeline.reporting.judging.severity import NotCovered
from pipeline.reporting.judging.verdicts import Verdict
from pipeline.reporting.papers import PaperResult
from pipeline.reporting.printed import Printed
from pipeline.reporting.results import Cell, LineResult, RowResult, TableResult, Value
from pipeline.reporting.tables import released_noise
from pipeline.reporting.vocabulary import words
from pipeline.results.schema import AccountantEpsilon, Attack

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


@dataclass(frozen=True)
class LevelResult:
    """A row at a level, run or not, or a line of the paper without a row."""

    result: TableResult
    line: LineResult
    row: RowResult | None
    level: str

    @property
    def cell(self) -> Cell | None:
        """What was measured there; None where nothing ran."""
        return self.row.cells.get(self.level) if self.row else None

    @property
    def private(self) -> bool:
        """Whether it claims privacy or has some."""
        return self.cell is not None and self.cell.guarantee.state != "none"

    @cached_property
    def verdict(self) -> Verdict | None:
        """On the ledger, with the attack that came closest to it or beyond."""
        record = self.row.record if self.row else None
        return verdicts.of_cell(self.cell, record) if self.cell and record else None

    @property
    def decides(self) -> bool:
        """Whether the row is the one that the line's verdict at the level is on."""
        return self.row is not None and self.line.decides(self.row, self.level)

    @property
    def theirs(self) -> Printed | None:
        """What the paper prints there."""
        return self.line.line.values.get(self.level) if self.line.line else None

    @cached_property
    def value(self) -> Value | None:
        """What became of the printed value that it decides; of a line without a row, that it waits."""
        return self.line.value(self.level) if self.row is None or self.decides else None

    @property
    def status(self) -> str:
        """The verdict on the printed value in one word or two."""
        return self.value.status if self.value else ""

    @property
    def evidence(self) -> str:
        """What a reader may take the number for."""
        if self.cell is None:
            return ""
        if self.cell.mean.exact:
            return "accounting"
        if self.value:
            return self.value.evidence
        return "planned" if self.cell.planned else "exploratory"

    @cached_property
    def not_covered(self) -> list[NotCovered]:
        """What no epsilon covers there, the worst first."""
        record = self.row.record if self.row else None
        return severity.of_cell(self.cell, record) if self.cell and record else []

    @cached_property
    def columns(self) -> Columns:
        """Every column of its line; those that nothing is known for are None."""
        return {**_declared(self), **_measured(self), **_spent(self), **_made(self)}


def csv(results: Iterable[LevelResult], columns: Sequence[str] | None = None) -> str:
    """Lines as text, of these columns alone if they are named."""
    frame = pd.DataFrame([here.columns for here in results], columns=columns)
    # counts stay whole beside missing ones
    return frame.convert_dtypes().to_csv(index=False, lineterminator="\n")


def of_papers(papers: Iterable[PaperResult]) -> list[LevelResult]:
    """Everything that ran, and every printed value that waits, in the order shown."""
    every = (here for paper in papers for table in paper.tables for here in of_table(table))
    return [here for here in every if here.cell or here.value]


def of_table(result: TableResult) -> Iterator[LevelResult]:
    """Each row at each level, run or not, and lines without a row."""
    for line in result.lines:
        for row in line.rows or (None,):
            for level in result.levels:
                yield LevelResult(result, line, row, level)


def _declared(here: LevelResult) -> Columns:
    result, row, theirs = here.result, here.row, here.theirs
    declared = row.declared if row and isinstance(row.declared, Row) else None
    return {
        "paper": result.paper,
        "table": result.name.removeprefix(f"{result.paper}-"),
        "line": here.line.label,
        "row": row.key if row else None,
        "variant": row.variant if row else None,
        "raw": row.raw if row else None,
        "level": here.level,
        "data": declared.data if declared else None,
        "method": declared.method if declared else None,
        "metric": result.table.metric,
        "metric_unit": result.table.unit,
        "budget": row.budget if row and declared else None,
        "status": "run" if here.cell else wording.NOT_RUN,
        "marks": "; ".join(caveat.words for caveat in row.caveats) if row else "",
        "paper_value": theirs.value if theirs else None,
        "paper_error": theirs.error if theirs else None,
        "paper_words": theirs.words if theirs else None,
        "paper_examples": result.table.examples,
        "decides": here.decides,
        **_verdict(here.value if here.decides else None),
    }


def of_contrasts(contrasts: Iterable[PrintedContrast]) -> str:
    """Contrasts as CSV, a line each."""
    lines = [_contrast(each) for each in contrasts]
    return pd.DataFrame(lines).convert_dtypes().to_csv(index=False, lineterminator="\n")


def _contrast(each: PrintedContrast) -> Columns:
    sides = {"left": each.left, "right": each.right}
    columns: Columns = {"paper": each.result.paper, "table": each.result.key}
    for name, side in sides.items():
        columns[f"{name}_line"], columns[f"{name}_level"] = side.line.key, side.level
        columns[f"{name}_row"] = side.row.key if side.row else None
        columns[f"{name}_paper_value"], columns[f"{name}_paper_error"] = side.printed, side.error
    return columns | {
        "paper_difference": round(each.theirs, 9),
        "difference": round(each.ours.value, 9) if each.ours else None,
        "half_width_95": each.half if each.ours else None,
        "margin": each.margin if each.ours else None,
        "status": each.status,
        "why": each.why or None,
        "argued": each.argued,
        "planned": each.planned if each.ours else None,
        "on_part_of_the_data": each.fewer_data if each.ours else None,
    }


def _verdict(value: Value | None) -> Columns:
    """The verdict on the printed value, and all that it rests on."""
    judged = value if value and value.verdict else None
    return {
        "verdict": value.words if value else None,
        "margin": judged.margin if judged else None,
        "difference_half_width_95": judged.half if judged and judged.away is not None else None,
        "verdict_by_table_margin": (judged.by_table_margin or judged.words) if judged else None,
        "strength": value.strength if value else None,
        "unfair": "; ".join(value.unfair) if value else None,
    }


def _measured(here: LevelResult) -> Columns:
    cell = here.cell
    trained = cell if cell and not cell.mean.exact else None
    columns: Columns = {
        "ours": round(cell.mean.value, 9) if cell else None,
        "half_width_95": cell.mean.half if cell else None,
        "seeds": trained.mean.n if trained else None,
        "evidence": here.evidence or None,
        "draws_std": cell.draws if cell else None,
        "converged": trained.converged if trained else None,
        "difference": cell.difference if cell else None,
        "caveat": cell.caveat if cell else None,
    }
    for metric in here.result.table.also:
        further = here.row.also[metric].get(here.level) if here.row else None
        columns[metric] = further.mean.value if further else None
        columns[f"{metric}_half_width_95"] = further.mean.half if further else None
    return columns


def _spent(here: LevelResult) -> Columns:
    """The ledger of the level's worst replica, and the attack that came closest to it or beyond."""
    guarantee, verdict = (here.cell.guarantee if here.cell else None), here.verdict
    ledger, attack = (guarantee.ledger if guarantee else None), (verdict.attack if verdict else None)
    return {
        "privacy": vocabulary.PRIVACY[guarantee.state].text if guarantee else None,
        "why": guarantee.reason if guarantee else None,
        "ledger_verdict": verdict.name if verdict else None,
        "floating_point": verdict.floating_point if verdict else None,
        "claimed": ledger.claimed if ledger else None,
        "claimed_by": ledger.claimed_by if ledger else None,
        "proven": ledger.epsilon_upper if ledger else None,
        "accountant": ledger.accountant if ledger else None,
        "shown": ledger.epsilon_lower if ledger else None,
        "shown_by": words(ledger.epsilon_lower_by) if ledger and ledger.epsilon_lower_by else None,
        "mu_clt": ledger.mu if ledger else None,
        "accountants": "; ".join(map(_accountant, ledger.accountants)) if ledger else "",
        **_attacked(attack),
        "delta": ledger.delta if ledger else None,
        "unit": ledger.unit if ledger else None,
        "neighbouring": RELATION_WORDS[ledger.neighbouring] if ledger else None,
        "noise_multiplier": ledger.noise_multiplier if ledger else None,
        "sampling": ledger.sampling if ledger else None,
        "sampling_rate": ledger.sampling_rate if ledger else None,
        "steps": ledger.steps if ledger else None,
        "not_covered": "; ".join(
            f"{vocabulary.SEVERITIES[use.severity].text}: {use.words}" for use in here.not_covered
        ),
        "not_covered_at_worst": severity.at_worst(severity.specific(here.not_covered)),
        "releases": "; ".join(map(released_noise.text, ledger.releases)) if ledger else "",
        "protects": words(ledger.protects) if ledger and ledger.protects else None,
    }


def _accountant(result: AccountantEpsilon) -> str:
    epsilon = "none" if result.epsilon is None else format(result.epsilon, ".6g")
    return f"{result.accountant}: {epsilon}" + (f" ({result.note})" if result.note else "")


def _attacked(attack: Attack | None) -> Columns:
    return {
        "attack": attack.attack if attack else None,
        "attack_shown": attack.largest if attack else None,
        "attack_shown_assuming_nothing": attack.epsilon if attack else None,
        "attack_proven": attack.epsilon_upper if attack else None,
        "attack_event": attack.event if attack else None,
        "attack_sees": attack.sees if attack else None,
        "attack_confidence": attack.confidence if attack else None,
        "attack_trials": sum(attack.trials) if attack else None,
        "attack_seconds": attack.seconds if attack else None,
    }


def _made(here: LevelResult) -> Columns:
    row = here.row if here.cell else None
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
