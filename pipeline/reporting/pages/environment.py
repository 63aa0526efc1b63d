"""The report's pages and texts, rendered from the templates here."""

from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
from markupsafe import Markup

from pipeline.privacy.sampled_gaussian import RELATION_WORDS
from pipeline.reporting import tally, vocabulary, wording
from pipeline.reporting.caveats import ENOUGH_EXAMPLES
from pipeline.reporting.drawing import forest
from pipeline.reporting.drawing.style import themed
from pipeline.reporting.judging import contrasts, fairness, guarantees, rule, severity, slowdown, verdicts
from pipeline.reporting.pages import summary
from pipeline.reporting.tables import ledger, reading, released_noise, remarks


def render(template: str, **values: Any) -> str:
    """The template filled with ``values``, its last line unended; those of HTML escape whatever is text."""
    return _environment().get_template(template).render(values).rstrip("\n")


@cache
def _environment() -> Environment:
    """Jinja with the modules whose wording tables and pages share."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=select_autoescape(["html"]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    modules = (
        contrasts, fairness, guarantees, ledger, reading, released_noise, remarks,
        rule, severity, slowdown, summary, tally, verdicts, vocabulary, wording,
    )  # fmt: skip
    environment.globals |= {module.__name__.rpartition(".")[2]: module for module in modules}
    environment.globals |= {
        "ENOUGH_EXAMPLES": ENOUGH_EXAMPLES,
        "RELATION_WORDS": RELATION_WORDS,
        "privacy_tones": {word.text: word.tone for word in vocabulary.PRIVACY.values()},
    }
    environment.globals["forest_style"] = Markup(forest.STYLE)
    environment.filters["forest"] = lambda panels, up: Markup(forest.inline(panels, up))
    environment.filters["inline"] = lambda svg, title: Markup(themed(svg, title))
    return environment
