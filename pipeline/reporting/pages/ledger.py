"""Every private level with what is claimed, audited and accounted for it."""

from collections.abc import Sequence

from pipeline.reporting.judging import severity, verdicts
from pipeline.reporting.ledger_overview import HEAD, Entry, counts, grades
from pipeline.reporting.pages.environment import environment


def render(entries: Sequence[Entry]) -> str:
    """The page as HTML."""
    template = environment().get_template("ledger.html")
    return template.render(
        entries=entries,
        counts=counts(entries),
        grades=grades(entries),
        head=HEAD,
        rule=verdicts.RULE,
        severity_rule=severity.RULE,
        up="",
    )
