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
from pipeline.reporting.judging import slowdown
from pipeline.reporting.judging.assess import ClaimResult
from pipeline.reporting.judging.guarantees import VACUOUS
from pipeline.reporting.printed import NO_CONVERGENCE
from pipeline.reporting.results import Cell, TableResult
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


def render(chapters: Sequence[Chapter]) -> str:
    """The page as HTML."""
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
        "delta": wording.delta,
        "protections": released_noise.protections,
        "releases": released_noise.releases,
        "releases_head": released_noise.head,
        "mu_rule": wording.mu_rule,
        "number_of": wording.table_number,
        "heading": wording.table_heading,
        "mlflow": links.row,
        "agreement": agreement,
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
        "NO_CONVERGENCE": NO_CONVERGENCE,
        "SLOWDOWN_HEAD": slowdowns.HEAD,
        "SLOWDOWN_RULE": slowdown.RULE,
        "RELEASES_RULE": released_noise.RULE,
    }
    return environment.get_template("page.html").render(chapters=chapters)


def agreement(result: PaperResult) -> list[Share]:
    """Every printed cell of the declared tables, by how ours compares."""
    counts: Counter[str] = Counter()
    for table in result.tables:
        for line in table.lines:
            for level in line.line.values if line.line else ():
                _count(counts, [row.cells for row in line.rows], level)
            for metric, values in line.line.also.items() if line.line else ():
                for level in values:
                    _count(counts, [row.also[metric] for row in line.rows], level)
    return _shares(
        counts,
        ("agrees", "agree with the paper", "good"),
        ("above", "above the paper", "plain"),
        ("below", "below the paper", "bad"),
        ("unjudged", "not judged: reduced budget, less data or too few step sizes", "warn"),
        ("untold", "can't be told: one seed, or only some converged", "warn"),
        ("incomparable", "not comparable", "warn"),
        ("missing", "not run", "faint"),
    )


def _count(counts: Counter[str], rows: list[dict[str, Cell]], level: str) -> None:
    """Add each row's verdict at the level, or that there is no row."""
    cells = [row[level] for row in rows if level in row]
    counts.update(map(_verdict, cells))
    counts["missing"] += not cells


def _verdict(cell: Cell) -> str:
    if not cell.comparable:
        return "incomparable"
    return cell.agreement or ("unjudged" if cell.caveat else "untold")


def privacy_bought(result: PaperResult) -> list[Share]:
    """Every cell that claims an epsilon, by what the claim is worth."""
    cells = [cell for table in result.tables for row in table.rows for cell in row.cells.values()]
    counts: Counter[str] = Counter(cell.guarantee.state for cell in cells)
    return _shares(
        counts,
        ("holds", "the claimed ε holds", "good"),
        ("weaker", "weaker than claimed", "warn"),
        ("vacuous", f"no privacy to speak of: a bound above ε = {VACUOUS:.1f}", "bad"),
        ("broken", "does not hold", "bad"),
        ("none", "claim no privacy", "faint"),
    )


def claims_met(claims: Sequence[ClaimResult]) -> list[Share]:
    """Every claim and variant of it, by its status."""
    counts: Counter[str] = Counter(status for claim in claims for status in claim.statuses)
    return _shares(
        counts,
        ("reproduced", "reproduced", "good"),
        ("not reproduced", "not reproduced", "bad"),
        ("undecided", "undecided", "warn"),
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
