"""What the pages' templates can call."""

from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from pipeline.privacy.spending import RELATION_WORDS
from pipeline.reporting import links, statements, vocabulary, wording
from pipeline.reporting.drawing.style import themed
from pipeline.reporting.gather import ENOUGH_EXAMPLES
from pipeline.reporting.judging import severity, slowdown
from pipeline.reporting.judging.rule import RULE
from pipeline.reporting.ledger_overview import closest_attack
from pipeline.reporting.pages.glossary import TERMS, term
from pipeline.reporting.tables import reading, released_noise, remarks, slowdowns


@cache
def environment() -> Environment:
    """Jinja with the wording that tables and pages share."""
    made = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "level": wording.level_value,
        "level_words": wording.level_words,
        "number": wording.number,
        "fixed": wording.fixed,
        "printed": wording.printed,
        "claim_source": wording.claim_source,
        "upwards": wording.upwards,
        "downwards": wording.downwards,
        "together": wording.together,
        "closest_attack": closest_attack,
        "not_covered": severity.of_cell,
        "signed": wording.signed,
        "privacy": wording.guarantee_words,
        "privacy_words": wording.privacy_words,
        "verdict_words": wording.verdict_words,
        "deciding": reading.deciding,
        "variants": reading.variants,
        "margin": wording.margin,
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
        "relation": RELATION_WORDS.__getitem__,
        "protections": released_noise.protections,
        "releases": released_noise.releases,
        "releases_head": released_noise.head,
        "mu_rule": wording.mu_rule,
        "number_of": wording.table_number,
        "heading": wording.table_heading,
        "mlflow": links.row,
        "inline": inline,
        "duration": duration,
        "settings_words": wording.settings_words,
    }
    made.globals |= {
        "VALUES": vocabulary.VALUES,
        "PRIVACY": vocabulary.PRIVACY,
        "LEDGERS": vocabulary.LEDGERS,
        "SEVERITIES": vocabulary.SEVERITIES,
        "OUTCOMES": vocabulary.OUTCOMES,
        "privacy_tones": {word.text: word.tone for word in vocabulary.PRIVACY.values()},
        "ENOUGH_EXAMPLES": ENOUGH_EXAMPLES,
        "RULE": RULE,
        "SLOWDOWN_HEAD": slowdowns.HEAD,
        "SLOWDOWN_RULE": slowdown.RULE,
        "RELEASES_RULE": released_noise.RULE,
        "TERMS": TERMS,
        "term": term,
    }
    return made


def duration(seconds: float) -> str:
    """``2 h 05 min``, ``3 min 20 s`` or ``12 s``."""
    whole = round(seconds)
    if whole >= 3600:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{whole // 60} min {whole % 60:02d} s" if whole >= 60 else f"{whole} s"


def inline(svg: str, title: str) -> Markup:
    """A figure as part of the page, in the page's colours."""
    return Markup(themed(svg, title))
