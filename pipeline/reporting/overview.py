"""`reports/README.md`: what was found and where each table is, for whoever reads on a git host."""

from collections.abc import Iterator, Sequence

from pipeline.reporting import tally, wording
from pipeline.reporting.judging import values
from pipeline.reporting.pages.index import first_findings
from pipeline.reporting.pages.paper import Chapter, verdicts
from pipeline.reporting.papers import short


def markdown(chapters: Sequence[Chapter]) -> str:
    """Findings, then for each paper its verdicts and its tables."""
    return "\n".join(_lines(chapters)) + "\n"


def _lines(chapters: Sequence[Chapter]) -> Iterator[str]:
    names = {chapter.result.key: short(chapter.result.paper) for chapter in chapters}
    yield "# Results"
    yield ""
    yield "Written by `dprepro report` from the records beside it. [index.html](index.html) is the same to"
    yield "browse, [summary.csv](summary.csv) every result in one table."
    results = [chapter.result for chapter in chapters]
    for text in (tally.values(values.counts(results)), tally.privacy(results)):
        if text:
            yield f"\n{text}"
    if found := first_findings(chapters):
        yield "\n## Findings\n"
        for said in found:
            privacy = f" *{wording.guarantee_words(said.guarantee)}*" if said.guarantee else ""
            yield f"- **{names[said.paper]}.** {said.text}{privacy} ([table](tables/{said.table}.md))"
    for chapter in chapters:
        yield f"\n## {names[chapter.result.key]}\n"
        if words := verdicts(chapter.result):
            yield words + "\n"
        for section in chapter.sections:
            run = "" if section.result.run else f" ({wording.NOT_RUN})"
            yield f"- [{wording.table_heading(section.result)}](tables/{section.result.name}.md){run}"
