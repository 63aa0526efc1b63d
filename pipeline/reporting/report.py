"""The whole report: tables, figures and pages, written under `reports/`."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pipeline.files import write_json, write_text
from pipeline.params import Settings
from pipeline.reporting import figures, findings, ledger_overview, overview
from pipeline.reporting.drawing import accuracy_privacy, curves, levels
from pipeline.reporting.gather import PaperResult, gather
from pipeline.reporting.judging.assess import assess
from pipeline.reporting.metrics import metrics
from pipeline.reporting.pages import index, ledger, paper, results
from pipeline.reporting.pages.paper import Chapter, Section
from pipeline.reporting.tables import flat
from pipeline.reporting.tables.latex import latex
from pipeline.reporting.tables.markdown import markdown

REPORTS = Path("reports")


@dataclass(frozen=True)
class Report:
    """What was written, and from what."""

    papers: tuple[PaperResult, ...]
    files: dict[str, list[Path]]  # by paper: its tables and figures
    index: Path  # the first page
    pages: dict[str, Path]  # by paper


def write(settings: Settings, root: Path = Path()) -> Report:
    """Draw everything that ``settings`` declares from the records under ``root``; trains and changes nothing.

    Raises:
        UserError: a record, history, search or paper is not one, or a file can't be written.
    """
    papers = gather(settings, root)
    chapters = [_chapter(result) for result in papers]
    folder = root / REPORTS
    files = {chapter.result.key: list(_write_chapter(chapter, folder)) for chapter in chapters}
    pages = {chapter.result.key: folder / "papers" / f"{chapter.result.key}.html" for chapter in chapters}
    for chapter in chapters:
        write_text(pages[chapter.result.key], paper.render(chapter, len(papers)))
    entries = flat.of_papers(papers)
    picture, every = accuracy_privacy.draw(papers), ledger_overview.entries(papers)
    if picture is not None:
        write_text(folder / "figures" / f"{accuracy_privacy.NAME}.svg", picture)
    write_text(folder / "tables" / "ledger.md", ledger_overview.markdown(every))
    write_text(folder / "tables" / "ledger.csv", flat.csv(flat.private(entries), flat.LEDGER))
    write_text(folder / "ledger.html", ledger.render(every))
    for result in papers:
        write_json(folder / "metrics" / f"{result.key}.json", metrics(result))
    write_text(folder / "results.html", results.render(entries))
    write_text(folder / "summary.csv", flat.csv(entries, flat.SUMMARY))
    write_text(folder / "README.md", overview.markdown(chapters))
    write_text(folder / "index.html", index.render(chapters, picture))
    return Report(tuple(papers), files, folder / "index.html", pages)


def _write_chapter(chapter: Chapter, folder: Path) -> Iterator[Path]:
    for section in chapter.sections:
        name = section.result.name
        for path, content in (
            (folder / "tables" / f"{name}.md", markdown(section.result)),
            (folder / "tables" / f"{name}.csv", flat.csv(flat.of_table(section.result))),
            (folder / "tables" / f"{name}.tex", latex(section.result)),
            (folder / "figures" / f"{name}.svg", section.levels),
            (folder / "figures" / f"{name}-curves.svg", section.curves),
            *((folder / "figures" / f"{figure.name}.svg", figure.svg) for figure in section.figures),
        ):
            if content is not None:
                write_text(path, content)
                yield path


def _chapter(result: PaperResult) -> Chapter:
    sections = (
        Section(table, levels.draw(table), curves.draw(table), tuple(figures.drawn(table)))
        for table in result.tables
    )
    claims = assess(result)
    said = findings.said(result.paper.findings, result.tables, claims)
    return Chapter(result, tuple(sections), tuple(claims), tuple(said))
