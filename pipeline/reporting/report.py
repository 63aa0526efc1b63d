"""The whole report: tables, figures and pages, written under `reports/`."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pipeline.files import write_json, write_text
from pipeline.params import Settings
from pipeline.reporting import beside, figures, findings, tally
from pipeline.reporting.drawing import accuracy_privacy, curves, levels
from pipeline.reporting.figures import Drawn
from pipeline.reporting.findings import Said
from pipeline.reporting.gather import gather
from pipeline.reporting.judging.assess import ClaimResult, assess
from pipeline.reporting.pages.environment import render
from pipeline.reporting.papers import short
from pipeline.reporting.results import PaperResult, TableResult
from pipeline.reporting.tables import flat, ledger
from pipeline.reporting.tables.latex import latex

REPORTS = Path("reports")


@dataclass(frozen=True)
class Section:
    """A filled table with the figures drawn from it."""

    result: TableResult
    levels: str | None  # SVG
    curves: str | None
    figures: tuple[Drawn, ...]  # that the paper's file asks for


@dataclass(frozen=True)
class Chapter:
    """A paper with all that its page shows."""

    result: PaperResult
    sections: tuple[Section, ...]
    claims: tuple[ClaimResult, ...]
    findings: tuple[Said, ...]


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
    pages = {result.key: folder / "papers" / f"{result.key}.html" for result in papers}
    for chapter in chapters:
        page = render("paper.html", chapter=chapter, experiments=len(papers), up="../")
        write_text(pages[chapter.result.key], page)
        write_json(folder / "metrics" / f"{chapter.result.key}.json", tally.metrics(chapter.result))
    _write_overviews(chapters, folder, accuracy_privacy.draw(papers, beside.read(settings, root)))
    return Report(tuple(papers), files, folder / "index.html", pages)


def _write_chapter(chapter: Chapter, folder: Path) -> Iterator[Path]:
    for section in chapter.sections:
        result, name = section.result, section.result.name
        for path, content in (
            (folder / "tables" / f"{name}.md", render("table.md", result=result) + "\n"),
            (folder / "tables" / f"{name}.csv", flat.csv(flat.of_table(result))),
            (folder / "tables" / f"{name}.tex", latex(result)),
            (folder / "figures" / f"{name}.svg", section.levels),
            (folder / "figures" / f"{name}-curves.svg", section.curves),
            *((folder / "figures" / f"{figure.name}.svg", figure.svg) for figure in section.figures),
        ):
            if content is not None:
                write_text(path, content)
                yield path


def _write_overviews(chapters: list[Chapter], folder: Path, picture: str | None) -> None:
    """What is over all papers: the first page, every result, every ledger."""
    papers = [chapter.result for chapter in chapters]
    results = flat.of_papers(papers)
    ran = [result for result in results if result.cell]
    private = [result for result in ran if result.private]
    published = [paper for paper in papers if paper.paper.published]  # rows of no paper are none of a paper's
    first = {
        "chapters": chapters,
        "names": {paper.key: short(paper.paper) for paper in papers},
        "findings": findings.first([chapter.findings for chapter in chapters]),
        "values": tally.values(*published),
        "privacy": tally.privacy(*(published or papers)),
    }
    if picture is not None:
        write_text(folder / "figures" / f"{accuracy_privacy.NAME}.svg", picture)
    write_text(folder / "index.html", render("index.html", **first, picture=picture, up=""))
    write_text(folder / "README.md", render("index.md", **first) + "\n")
    write_text(folder / "results.html", render("results.html", results=results, up=""))
    write_text(folder / "summary.csv", flat.csv(ran, flat.SUMMARY))
    write_text(folder / "ledger.html", render("ledger.html", results=private, up=""))
    write_text(folder / "tables" / "ledger.md", render("ledger.md", lines=map(ledger.cells, private)) + "\n")
    write_text(folder / "tables" / "ledger.csv", flat.csv(private, flat.LEDGER))


def _chapter(result: PaperResult) -> Chapter:
    sections = (
        Section(table, levels.draw(table), curves.draw(table), tuple(figures.drawn(table)))
        for table in result.tables
    )
    claims = assess(result)
    said = findings.said(result.paper.findings, result.tables, claims)
    return Chapter(result, tuple(sections), tuple(claims), tuple(said))
