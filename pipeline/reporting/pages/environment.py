"""Rendering of pages and Markdown files from the templates in this folder."""

from functools import cache
from html import escape
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
from markupsafe import Markup

from dprepro.pipeline.reporting import cells, wording
from dprepro.pipeline.reporting.caveats import ENOUGH_EXAMPLES, caveats_at
from dprepro.pipeline.reporting.drawing import forest, levels
from dprepro.pipeline.reporting.drawing.style import themed
from dprepro.pipeline.reporting.figures import table_figures
from dprepro.pipeline.reporting.judging import guarantees, rule
from dprepro.pipeline.reporting.judging.severity import at_worst
from dprepro.pipeline.reporting.pages import views
from dprepro.pipeline.reporting.prose import counts, findings
from dprepro.pipeline.reporting.vocabulary import WORDS, words
from dprepro.pipeline.results.schema import CONVERGED

# functions that templates call by their own names; each is also a filter
FUNCTIONS: tuple[Any, ...] = (
    *(format for format in vars(wording).values() if getattr(format, "__module__", "") == wording.__name__),
    at_worst, caveats_at, counts.by_chance, counts.claim_counts, counts.contrast_counts, counts.overview,
    counts.privacy, counts.roughly, counts.value_counts, counts.verdict,
    findings.first_findings, findings.render_findings, forest.panels, forest.x, table_figures, views.alarms,
    counts.claim_words, views.deciding, views.difference, views.row_facts, views.row_settings, views.shares,
    views.states, views.variants, words,
)  # fmt: skip


def render(template: str, **values: Any) -> str:
    """Fill a template with results, without a newline at the end; HTML templates escape text."""
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
    functions = {function.__name__: function for function in FUNCTIONS}
    environment.filters |= functions
    environment.filters["xml"] = lambda text: Markup(escape(text))
    environment.filters["inline"] = lambda svg, title: Markup(themed(svg, title))
    environment.globals |= functions | {
        "vocabulary": WORDS,
        "SHAPES": forest.SHAPES,
        "plot": levels.draw,
        "CONVERGED": CONVERGED,
        "STEP_SIZES": cells.STEP_SIZES,
        "SPAN": cells.SPAN,
        "FEWEST_SEEDS": rule.FEWEST_SEEDS,
        "ENOUGH_EXAMPLES": ENOUGH_EXAMPLES,
        "VACUOUS": guarantees.VACUOUS,
        "WEAKER_REASON": guarantees.WEAKER_REASON,
    }
    return environment
