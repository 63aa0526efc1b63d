"""Rendering of pages and Markdown files from the templates in this folder."""

from dataclasses import dataclass
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
from markupsafe import Markup

from pipeline.privacy.sampled_gaussian import RELATION_WORDS
from pipeline.reporting import wording
from pipeline.reporting.caveats import ENOUGH_EXAMPLES, caveats_at
from pipeline.reporting.drawing import forest
from pipeline.reporting.drawing.style import themed
from pipeline.reporting.judging import guarantees, rule
from pipeline.reporting.prose.counts import roughly
from pipeline.reporting.vocabulary import WORDS, words

# formats of numbers, levels and ledgers
FILTERS = (
    caveats_at, roughly, words, wording.attack_words, wording.cell_text, wording.claim, wording.column_heads,
    wording.columns_words, wording.composition, wording.convergence, wording.delta, wording.downwards,
    wording.duration, wording.examples_words, wording.fixed, wording.guarantee_words, wording.isolation,
    wording.level_words, wording.margin, wording.measured_words, wording.number, wording.printed,
    wording.privacy_words, wording.release_words, wording.settings_words, wording.shared_words,
    wording.signed, wording.table_heading, wording.upwards,
)  # fmt: skip


@dataclass(frozen=True)
class Rules:
    """Numbers of the rules that the foot of every page states."""

    fewest_seeds: int = rule.FEWEST_SEEDS
    enough_examples: float = ENOUGH_EXAMPLES
    vacuous: float = guarantees.VACUOUS
    weaker: str = guarantees.WEAKER_REASON


def render(template: str, **values: Any) -> str:
    """Fill a template with view models, without a newline at the end; HTML templates escape text."""
    return _environment().get_template(template).render(values).rstrip("\n")


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=select_autoescape(["html", "svg"]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= {
        "vocabulary": WORDS,
        "rules": Rules(),
        "RELATION_WORDS": RELATION_WORDS,
        "SHAPES": forest.SHAPES,
    }
    environment.filters |= {function.__name__: function for function in FILTERS}
    environment.filters["x"] = forest.x
    environment.filters["xml"] = lambda text: Markup(escape(text))
    environment.filters["inline"] = lambda svg, title: Markup(themed(svg, title))
    return environment
