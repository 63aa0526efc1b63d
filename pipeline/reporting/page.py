"""The one page: self-contained, no script, no network."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from pipeline.reporting import links, statements, wording
from pipeline.reporting.drawing.style import themed
from pipeline.reporting.figures import Drawn
from pipeline.reporting.gather import ENOUGH_EXAMPLES, PaperResult
from pipeline.reporting.judging import slowdown, values
from pipeline.reporting.judging.assess import ClaimResult
from pipeline.reporting.judging.guarantees import VACUOUS
from pipeline.reporting.judging.verdicts import RULE as verdicts_rule
from pipeline.reporting.ledger_overview import HEAD, Entry, closest_attack, counts
from pipeline.reporting.printed import NO_CONVERGENCE
from pipeline.reporting.results import AGREEMENT_RULE, LineResult, TableResult
from pipeline.reporting.tables import released_noise, remarks, slowdowns
from pipeline.results.records import Record


@dataclass(frozen=True)
class Section:
    """A filled table with the figures drawn from it."""

    result: TableResult
    levels: str | None  # SVG
    curves: str | None
    figures: tuple[Drawn, ...]  # that the paper's file asks for


@dataclass(frozen=True)
class Chapter:
    """A paper on the page."""

    result: PaperResult
    sections: tuple[Section, ...]
    claims: tuple[ClaimResult, ...]


@dataclass(frozen=True)
class Share:
    """A part of a bar: how many, what they are, and the page's colour for it."""

    count: int
    words: str
    tone: str  # good, bad, warn, plain or faint


def render(chapters: Sequence[Chapter], picture: str | None = None, overview: Sequence[Entry] = ()) -> str:
    """The page as HTML; ``picture``: accuracy against proven epsilon, ``overview``: all ledgers."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "level": wording.level_value,
        "level_words": wording.level_words,
        "number": wording.number,
        "fixed": wording.fixed,
        "printed": wording.printed,
        "signed": wording.signed,
        "privacy": wording.guarantee_words,
        "reasons": remarks.reasons,
        "words": statements.words,
        "notes": remarks.notes,
        "slowdowns": slowdown.measured,
        "slowdown_cells": slowdowns.cells,
        "convergence": wording.convergence,
        "columns": wording.columns_words,
        "measured": wording.measured_words,
        "claim": wording.claim,
        "claim_source": wording.claim_source,
        "upwards": wording.upwards,
        "downwards": wording.downwards,
        "together": wording.together,
        "verdict_counts": counts,
        "closest_attack": closest_attack,
        "delta": wording.delta,
        "protections": released_noise.protections,
        "releases": released_noise.releases,
        "releases_head": released_noise.head,
        "mu_rule": wording.mu_rule,
        "number_of": wording.table_number,
        "heading": wording.table_heading,
        "mlflow": links.row,
        "agreement": agreement,
        "verdicts": verdicts,
        "verdict": verdict,
        "privacy_bought": privacy_bought,
        "claims_met": claims_met,
        "inline": _inline,
        "duration": duration,
        "settings_of": settings_of,
        "settings_words": wording.settings_words,
    }
    environment.globals |= {
        "VERDICTS": wording.VERDICTS,
        "NOT_RUN": wording.NOT_RUN,
        "VACUOUS": VACUOUS,
        "MU_RULE": wording.MU_RULE,
        "ENOUGH_EXAMPLES": ENOUGH_EXAMPLES,
        "AGREEMENT_RULE": AGREEMENT_RULE,
        "NO_CONVERGENCE": NO_CONVERGENCE,
        "SLOWDOWN_HEAD": slowdowns.HEAD,
        "SLOWDOWN_RULE": slowdown.RULE,
        "RELEASES_RULE": released_noise.RULE,
        "LEDGER_HEAD": HEAD,
        "LEDGER_RULE": verdicts_rule,
    }
    return environment.get_template("page.html").render(chapters=chapters, picture=picture, overview=overview)


def agreement(result: PaperResult) -> list[Share]:
    """Every value that the paper prints, by its verdict."""
    counts: Counter[str] = Counter(value.verdict for value in values.judge(result))
    return _shares(
        counts,
        ("agrees", "agree with the paper", "good"),
        ("above", "above the paper", "plain"),
        ("below", "below the paper", "bad"),
        ("not judged", "not judged: too small a budget, less data, too few seeds or step sizes", "warn"),
        ("waits for a GPU", "wait for a GPU", "faint"),
        ("not run", "not run", "faint"),
    )


def verdict(line: LineResult, level: str) -> str:
    """What became of a printed value, in words."""
    return values.of_line(line.line, line.rows, level).words if line.line else ""


def verdicts(result: PaperResult) -> str:
    """The paper in a sentence: how many of its values agree, differ, can't be judged, wait, were not run."""
    summary = values.summary(result)
    if not summary.total:
        return ""
    parts = [f"{summary.agree} agree", f"{summary.differ} differ"]
    if summary.not_judged:
        parts.append(
            f"{summary.not_judged.total()} can't be judged yet ({values.reasons(summary.not_judged)})"
        )
    parts.append(f"{summary.waiting} wait for a GPU" + _hours(summary))
    parts.append(f"{summary.not_run.total()} not run")
    if summary.not_run:
        parts[-1] += f" ({values.reasons(summary.not_run)})"
    text = f"Of {summary.total} printed values {', '.join(parts[:-1])}, and {parts[-1]}."
    if summary.out_of_scope:
        text += f" {summary.out_of_scope} more numbers are out of scope, for the reasons given below."
    return text


def _hours(summary: values.Summary) -> str:
    if not summary.waiting:
        return ""
    known = f"their rows would take {wording.number(summary.hours)} hours at the speed measured on the CPU"
    unknown = f"{summary.unknown} {'row' if summary.unknown == 1 else 'rows'} of unknown length"
    if not summary.hours:
        return f" ({unknown})"
    return f" ({known}{', beside ' + unknown if summary.unknown else ''})"


def privacy_bought(result: PaperResult) -> list[Share]:
    """Every cell of a row as in the paper, by what its claim of an epsilon is worth."""
    rows = [row for table in result.tables if not table.table.own for row in table.rows if not row.variant]
    cells = [cell for row in rows for cell in row.cells.values()]
    counts: Counter[str] = Counter(cell.guarantee.state for cell in cells)
    return _shares(
        counts,
        ("holds", "the claimed ε holds", "good"),
        ("weaker", "only a larger ε than claimed is proven", "warn"),
        ("exceeds", "spend more than is claimed", "bad"),
        ("vacuous", f"no privacy to speak of: a bound above ε = {VACUOUS:.1f}", "bad"),
        ("broken", "does not hold", "bad"),
        ("none", "claim no privacy", "faint"),
    )


def claims_met(claims: Sequence[ClaimResult]) -> list[Share]:
    """Every claim of the paper by its status; none that is tested on an experiment of our own."""
    counts: Counter[str] = Counter(claim.status for claim in claims if not claim.own)
    return _shares(
        counts,
        ("reproduced", "reproduced", "good"),
        ("not reproduced", "not reproduced", "bad"),
        ("undecided", "undecided", "warn"),
        ("not judged", "run, but not judged: too small a budget, less data or too few step sizes", "warn"),
        ("only differently", "decided with a change alone", "plain"),
        ("by construction", "hold by construction", "faint"),
        ("waits for a GPU", "wait for a GPU", "faint"),
        ("not tested", "not tested", "faint"),
        ("not run", "not run", "faint"),
    )


def _shares(counts: Counter[str], *parts: tuple[str, str, str]) -> list[Share]:
    return [Share(counts[key], words, tone) for key, words, tone in parts if counts[key]]


def settings_of(record: Record) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """The method's settings: those that all levels share, and what each level has beside its name."""
    by_level = {replica.level: replica.settings for replica in record.replicas}
    first, *others = by_level.values()
    common = {name: value for name, value in first.items() if all(own.get(name) == value for own in others)}
    special: dict[str, dict[str, Any]] = {}
    for level, own in by_level.items():
        said = {*common, level.partition("=")[0]}
        if left := {name: value for name, value in own.items() if name not in said}:
            special[level] = left
    return common, special


def duration(seconds: float) -> str:
    """``2 h 05 min``, ``3 min 20 s`` or ``12 s``."""
    whole = round(seconds)
    if whole >= 3600:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{whole // 60} min {whole % 60:02d} s" if whole >= 60 else f"{whole} s"


def _inline(svg: str, title: str) -> Markup:
    return Markup(themed(svg, title))
