"""Pages and Markdown files from the templates in this folder.

Each page is one file, which loads nothing from elsewhere and is readable without scripts.
"""

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
from markupsafe import Markup

from dprepro.pipeline.ledgers.sentences import composition, counted, data_budget, delta, number, upwards
from dprepro.pipeline.reporting.pages import views
from dprepro.pipeline.reporting.wording import (
    attack_words,
    half,
    isolation,
    level_words,
    settings_words,
    signed,
    spelled,
    words,
)


def render(template: str, **values: Any) -> str:
    """Fill a template with results, without a newline at the end; HTML templates escape text."""
    return _environment().get_template(template).render(values).rstrip("\n")


def anchor(heading: str) -> str:
    """Anchor of a Markdown heading, as GitHub and the site's pages have it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=select_autoescape(["html"]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    texts: list[Callable[..., Any]] = [
        attack_words,
        composition,
        counted,
        data_budget,
        delta,
        half,
        isolation,
        level_words,
        number,
    ]
    texts += [settings_words, signed, spelled, upwards, words]
    texts += [views.base_rate, views.guess, views.row_settings, views.uses]
    environment.filters |= {each.__name__: each for each in texts}
    environment.filters["inline"] = lambda svg: Markup(svg[svg.index("<svg") :])
    environment.filters["anchor"] = anchor
    environment.filters["slug"] = lambda status: status.replace(" ", "-")
    environment.globals |= {"SIGNS": views.SIGNS, "VALUES": views.VALUES}
    return environment
