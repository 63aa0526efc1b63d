"""The first page: what was found, and the way to everything else."""

from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.reporting import tally
from pipeline.reporting.findings import Said
from pipeline.reporting.judging import values
from pipeline.reporting.pages.environment import environment
from pipeline.reporting.pages.paper import Chapter, Share, agreement, privacy_bought
from pipeline.reporting.papers import short

FINDINGS = 8  # at most, so that they stand in the first screen


@dataclass(frozen=True)
class Entry:
    """A paper on the index."""

    key: str
    short: str
    title: str
    values: list[Share]
    privacy: list[Share]


def render(chapters: Sequence[Chapter], picture: str | None = None) -> str:
    """The index as HTML; ``picture`` is an SVG."""
    results = [one.result for one in chapters]
    papers = [
        Entry(
            one.result.key,
            short(one.result.paper),
            one.result.paper.title,
            agreement(one.result),
            privacy_bought(one.result),
        )
        for one in chapters
    ]
    return (
        environment()
        .get_template("index.html")
        .render(
            papers=papers,
            names={paper.key: paper.short for paper in papers},
            findings=first_findings(chapters),
            values=tally.values(values.counts(results)),
            privacy=tally.privacy(results),
            picture=picture,
            up="",
        )
    )


def first_findings(chapters: Sequence[Chapter]) -> list[Said]:
    """Each paper's most important one, then each one's second, as many as fit."""
    found = [
        said for place in range(FINDINGS) for one in chapters for said in one.findings[place : place + 1]
    ]
    return found[:FINDINGS]
