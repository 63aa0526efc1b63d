"""Pages and Markdown files from the templates in this folder.

Each page is one file, which loads nothing from elsewhere and is readable without scripts.
"""

import re
from functools import cache
from inspect import getmembers, isfunction
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
from markupsafe import Markup

import dprepro.pipeline.ledgers.sentences as sentences
from dprepro.pipeline.reporting import wording
from dprepro.pipeline.reporting.pages import views


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
    for module in (sentences, wording, views):
        environment.filters |= dict(getmembers(module, isfunction))
    environment.filters["inline"] = lambda svg: Markup(svg[svg.index("<svg") :])
    environment.filters["anchor"] = anchor
    environment.filters["slug"] = lambda status: status.replace(" ", "-")
    environment.globals |= {"SIGNS": views.SIGNS, "VALUES": views.VALUES, "PARTS": views.PARTS}
    return environment
