"""Write the report: tables, figures and pages, under `reports/`."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pipeline.files import write_json, write_text
from pipeline.params import Settings
from pipeline.reporting import figures
from pipeline.reporting.drawing import accuracy_privacy, curves, forest, levels
from pipeline.reporting.facts import PaperResult, table_facts
from pipeline.reporting.gather import gather
from pipeline.reporting.pages.environment import render
from pipeline.reporting.pages.views import PaperView, TableView, index_view, ledger_view, paper_view
from pipeline.reporting.prose import counts
from pipeline.reporting.results import TableResult
from pipeline.reporting.tables import csv
from pipeline.reporting.tables.reading import latex

REPORTS = Path("reports")


@dataclass(frozen=True)
class Report:
    """Written files and their results."""

    papers: tuple[PaperResult, ...]
    files: dict[str, list[Path]]  # by paper: its tables and figures
    index: Path  # the first page
    pages: dict[str, Path]  # by paper


def write(settings: Settings, root: Path = Path()) -> Report:
    """Write the report of everything that ``settings`` declares, from the records under ``root``.

    Unchanged files keep their modification time.

    Raises:
        UserError: a record, history, search or paper is invalid, or a file can't be written.
    """
    papers, folder = gather(settings, root), root / REPORTS
    views: list[PaperView] = []
    files: dict[str, list[Path]] = {}
    for paper in papers:
        drawn = {table.name: dict(_figures(table)) for table in paper.tables}
        view = paper_view(paper, drawn, len(papers))
        page = {f"papers/{paper.key}.html": render("paper.html", page=view, up="../")}
        written = {path: text for table in view.tables for path, text in _tables(table)}
        written |= {path: text for of_table in drawn.values() for path, text in of_table.items()}
        files[paper.key] = [folder / name for name in written]
        _put(written | page, folder)
        write_json(folder / "metrics" / f"{paper.key}.json", counts.metrics(paper))
        views.append(view)
    picture = accuracy_privacy.draw(papers, accuracy_privacy.external_results(settings, root))
    _put(dict(_overviews(views, picture)), folder)
    pages = {key: folder / "papers" / f"{key}.html" for key in files}
    return Report(tuple(papers), files, folder / "index.html", pages)


def _put(files: Mapping[str, str], folder: Path) -> None:
    """Write the files that are missing or differ."""
    for name, content in files.items():
        path = folder / name
        if not path.exists() or path.read_bytes() != content.encode():
            write_text(path, content)


def _tables(view: TableView) -> Iterator[tuple[str, str]]:
    """(path, text) of a table as Markdown, CSV and LaTeX."""
    name = view.result.name
    yield f"tables/{name}.md", render("table.md", view=view) + "\n"
    yield f"tables/{name}.csv", csv.facts_csv(table_facts(view.result))
    yield f"tables/{name}.tex", latex(view.result)


def _figures(result: TableResult) -> Iterator[tuple[str, str]]:
    """(path, SVG) of a table's figures and its rows' training curves."""
    for name, svg in (
        (result.name, levels.draw(result)),
        *((figure, module.draw(result)) for figure, module in figures.table_figures(result).items()),
        *((f"{row.key}-curves", curves.draw(row, result)) for row in result.rows),
    ):
        if svg is not None:
            yield f"figures/{name}.svg", svg


def _overviews(papers: list[PaperView], picture: str | None) -> Iterator[tuple[str, str]]:
    """(path, text) of the files over all papers: first page, all results, all ledgers, contrasts."""
    facts = [fact for paper in papers for fact in paper.result.facts if not fact.metric]
    ran = [fact for fact in facts if fact.cell]
    private = [fact for fact in ran if fact.private]
    index = index_view(papers, picture)
    if picture is not None:
        yield f"figures/{accuracy_privacy.NAME}.svg", picture
    if index.panels:
        yield f"figures/{forest.NAME}.svg", render("forest.svg", panels=index.panels) + "\n"
    yield (
        "contrasts.csv",
        csv.contrasts_csv(contrast for paper in papers for contrast in paper.result.contrasts),
    )
    yield "index.html", render("index.html", page=index, up="")
    yield "README.md", render("index.md", page=index) + "\n"
    shown = sorted((fact for fact in facts if fact.cell or fact.value), key=lambda fact: fact.value is None)
    yield "results.html", render("results.html", facts=shown, up="")
    yield "summary.csv", csv.facts_csv(ran, csv.SUMMARY)
    page = ledger_view(private)
    yield "ledger.html", render("ledger.html", page=page, up="")
    yield "tables/ledger.md", render("ledger.md", page=page) + "\n"
    yield "tables/ledger.csv", csv.facts_csv(private, csv.LEDGER)
