"""All results in one table, which a reader can filter where scripts run."""

from collections.abc import Sequence

from pipeline.reporting.pages.environment import environment
from pipeline.reporting.tables.flat import Entry


def render(entries: Sequence[Entry]) -> str:
    """The page as HTML."""
    names = ("paper", "data", "method", "privacy")
    choices = {name: sorted({str(entry[name]) for entry in entries if entry[name]}) for name in names}
    return environment().get_template("results.html").render(lines=entries, choices=choices, up="")
