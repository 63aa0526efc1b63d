"""What tests look up in results."""

import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

from dprepro.pipeline.params import Settings
from dprepro.pipeline.reporting.facts import PaperResult
from dprepro.pipeline.reporting.gather import gather
from dprepro.pipeline.reporting.judging.assess import ClaimResult
from dprepro.pipeline.reporting.judging.claim_test import ClaimTest, Outcome, Rows
from dprepro.pipeline.reporting.pages import environment
from dprepro.pipeline.reporting.report import Report
from dprepro.pipeline.reporting.results import LineResult, RowResult, TableResult, Value
from tests.reporting import markup


def row(table: TableResult, key: str) -> RowResult:
    return next(declared for declared in table.rows if declared.key == key)


def value(table: TableResult, key: str, level: str) -> Value:
    """The printed value of the row's line, judged."""
    line = next(line for line in table.lines if any(row.key == key for row in line.rows))
    found = line.value(level)
    assert found is not None
    return found


def table(declared: Settings, root: Path, key: str = "") -> TableResult:
    """A table of the first paper that there are rows of, its first if it isn't named."""
    return next(part for part in gather(declared, root)[0].tables if key in ("", part.key))


def claims(result: PaperResult) -> dict[str, ClaimResult]:
    """Its claims by their keys."""
    return {claim.claim.key: claim for claim in result.claims}


def chosen(*rows: RowResult) -> LineResult:
    """A line of these rows alone, judged as what the first is."""
    return LineResult("line", None, rows, rows[0].variant if rows else "")


def plain(result: PaperResult, *references: str) -> Rows:
    """Each line as its first row is."""
    lines = {reference: result.lines.get(reference) for reference in references}
    return {reference: chosen(*line.rows[:1]) for reference, line in lines.items() if line}


def outcome(result: PaperResult, kind: type[ClaimTest], /, **said: Any) -> Outcome:
    """The one outcome of a test on each line's first row."""
    test = kind.model_validate(said)
    (outcome,) = test.ours(plain(result, *test.references), result.paper)
    return outcome


def page_of(written: Report) -> Path:
    """The page of the first of its papers."""
    return next(iter(written.pages.values()))


def text(written: Report) -> str:
    """The same as read."""
    return markup.words(page_of(written).read_text(encoding="utf-8"))


def drawn(svg: str | None, *texts: str) -> str:
    """A figure as SVG; it is one, and says all of these."""
    assert svg is not None
    ElementTree.fromstring(svg)
    assert [text for text in texts if text not in svg] == []
    return svg


def section(table: TableResult) -> str:
    """The table's section of a page as read, from its cells to its rows' ledgers."""
    template = '{% from "section.html" import filled with context %}{{ filled(table) }}'
    page = environment._environment().from_string(template).render(table=table, up="")
    return markup.words(page)


def shown(table: TableResult) -> str:
    """The cells of its section alone."""
    return section(table).partition("As a plot")[0]
