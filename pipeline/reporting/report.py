"""The whole report: tables, figures and pages, written under `reports/`."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from pipeline.files import write_json, write_text
from pipeline.params import Settings
from pipeline.reporting import figures, findings, tally
from pipeline.reporting.drawing import accuracy_privacy, curves, forest, levels
from pipeline.reporting.drawing.forest import Panel
from pipeline.reporting.findings import Said
from pipeline.reporting.gather import gather
from pipeline.reporting.judging.assess import ClaimResult, assess
from pipeline.reporting.judging.contrasts import PrintedContrast, of_papers
from pipeline.reporting.pages.environment import render
from pipeline.reporting.papers import PaperResult, short
from pipeline.reporting.results import TableResult
from pipeline.reporting.tables import flat, ledger
from pipeline.reporting.tables.reading import latex

REPORTS = Path("reports")


@dataclass(frozen=True)
class Section:
    """A filled table with what is drawn from it."""

    result: TableResult
    files: Mapping[str, str]  # tables and figures, by their paths under `reports/`

    def figure(self, name: str) -> str | None:
        """As SVG; None where there was nothing to draw."""
        return self.files.get(f"figures/{name}.svg")

    @property
    def figures(self) -> dict[str, ModuleType]:
        """By their names those that the paper's file asks for and that there is something to draw for."""
        modules = figures.of_table(self.result)
        return {name: module for name, module in modules.items() if self.figure(name)}


@dataclass(frozen=True)
class Chapter:
    """A paper with all that its page shows."""

    result: PaperResult
    sections: tuple[Section, ...]
    claims: tuple[ClaimResult, ...]
    contrasts: tuple[PrintedContrast, ...]
    findings: tuple[Said, ...]

    @property
    def forest(self) -> list[Panel]:
        """Panels of its judged values and contrasts."""
        return forest.panels([self.result], self.contrasts)


@dataclass(frozen=True)
class Report:
    """What was written, and from what."""

    papers: tuple[PaperResult, ...]
    files: dict[str, list[Path]]  # by paper: its tables and figures
    index: Path  # the first page
    pages: dict[str, Path]  # by paper


def write(settings: Settings, root: Path = Path()) -> Report:
    """Show everything that ``settings`` declares from the records under ``root``; trains and changes nothing.

    Files that stay the same aren't touched.

    Raises:
        UserError: a record, history, search or paper is not one, or a file can't be written.
    """
    papers, folder = gather(settings, root), root / REPORTS
    chapters = [_chapter(result) for result in papers]
    files: dict[str, list[Path]] = {}
    for chapter in chapters:
        key = chapter.result.key
        drawn = {name: text for section in chapter.sections for name, text in section.files.items()}
        files[key] = [folder / name for name in drawn]
        page = render("paper.html", chapter=chapter, experiments=len(papers), up="../")
        _put({**drawn, f"papers/{key}.html": page}, folder)
        write_json(folder / "metrics" / f"{key}.json", tally.metrics(chapter.result))
    picture = accuracy_privacy.draw(papers, accuracy_privacy.external_results(settings, root))
    _put(dict(_overviews(chapters, picture)), folder)
    pages = {key: folder / "papers" / f"{key}.html" for key in files}
    return Report(tuple(papers), files, folder / "index.html", pages)


def _put(files: Mapping[str, str], folder: Path) -> None:
    """Write what is not there as it should be."""
    for name, content in files.items():
        path = folder / name
        if not path.exists() or path.read_bytes() != content.encode():
            write_text(path, content)


def _chapter(result: PaperResult) -> Chapter:
    sections = tuple(Section(table, dict(_drawn(table))) for table in result.tables)
    claims = assess(result)
    contrasts = of_papers([result])
    said = findings.said(result.paper.findings, result.tables, claims, contrasts)
    return Chapter(result, sections, tuple(claims), tuple(contrasts), tuple(said))


def _drawn(result: TableResult) -> Iterator[tuple[str, str]]:
    """(path, text) of a table's files: the table itself, then its figures and its rows' curves."""
    yield f"tables/{result.name}.md", render("table.md", result=result) + "\n"
    yield f"tables/{result.name}.csv", flat.csv(flat.of_table(result))
    yield f"tables/{result.name}.tex", latex(result)
    yield from _figures(result)


def _figures(result: TableResult) -> Iterator[tuple[str, str]]:
    """(path, SVG) of a table's figures and its rows' curves."""
    for path, svg in (
        (result.name, levels.draw(result)),
        *((figure, module.draw(result)) for figure, module in figures.of_table(result).items()),
        *((f"{row.key}-curves", curves.draw(row, result)) for row in result.rows),
    ):
        if svg is not None:
            yield f"figures/{path}.svg", svg


def _overviews(chapters: list[Chapter], picture: str | None) -> Iterator[tuple[str, str]]:
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
        "contrast_counts": tally.contrasts(*published),
        "claim_counts": tally.claims([claim for chapter in chapters for claim in chapter.claims]),
        "by_chance": tally.by_chance(*published),
        "privacy": tally.privacy(*(published or papers)),
    }
    if picture is not None:
        yield f"figures/{accuracy_privacy.NAME}.svg", picture
    contrasts = [each for chapter in chapters for each in chapter.contrasts]
    shown = forest.panels(published, contrasts)
    if (whole := forest.standalone(shown)) is not None:
        yield f"figures/{forest.NAME}.svg", whole
    yield "contrasts.csv", flat.of_contrasts(contrasts)
    yield "index.html", render("index.html", **first, picture=picture, panels=shown, up="")
    yield "README.md", render("index.md", **first) + "\n"
    judged_first = sorted(results, key=lambda here: here.value is None)
    yield "results.html", render("results.html", results=judged_first, up="")
    yield "summary.csv", flat.csv(ran, flat.SUMMARY)
    yield "ledger.html", render("ledger.html", results=private, up="")
    yield "tables/ledger.md", render("ledger.md", lines=map(ledger.cells, private)) + "\n"
    yield "tables/ledger.csv", flat.csv(private, flat.LEDGER)
