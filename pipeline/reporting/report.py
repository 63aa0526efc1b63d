"""Write the report: pages, CSV files, counts and pictures, under `reports/`."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pipeline.files import digest, write_json, write_text
from pipeline.params import Settings
from pipeline.reporting.drawing import accuracy_privacy, forest
from pipeline.reporting.facts import PaperResult
from pipeline.reporting.gather import gather
from pipeline.reporting.pages.environment import render
from pipeline.reporting.pages.views import PaperView, index_view, ledger_view, paper_view
from pipeline.reporting.prose import counts
from pipeline.reporting.summary import contrasts_csv, summary_csv

REPORTS = Path("reports")


@dataclass(frozen=True)
class Report:
    """Results of a report and its pages."""

    papers: tuple[PaperResult, ...]
    index: Path  # the first page
    pages: dict[str, Path]  # by paper
    tables: tuple[Path, ...]  # of all papers


def write(settings: Settings, root: Path = Path()) -> Report:
    """Write the report of everything that ``settings`` declares, from the records under ``root``.

    Unchanged files keep their modification time.

    Raises:
        UserError: a record, history, search or paper is invalid, or a file can't be written.
    """
    papers, folder = gather(settings, root), root / REPORTS
    views = list(map(paper_view, papers))
    picture = accuracy_privacy.draw(papers, accuracy_privacy.external_results(settings, root))
    for outputs in ("figures", "metrics", "papers"):  # DVC refuses a stage without one of its outputs
        (folder / outputs).mkdir(parents=True, exist_ok=True)
    _put(dict(_files(views, picture)), folder)
    for paper in papers:
        write_json(folder / "metrics" / f"{paper.key}.json", counts.metrics(paper))
    pages = {paper.key: folder / "papers" / f"{paper.key}.html" for paper in papers}
    tables = (folder / "summary.csv", folder / "contrasts.csv")
    return Report(tuple(papers), folder / "index.html", pages, tables)


def _put(files: Mapping[str, str], folder: Path) -> None:
    """Write the files that are missing or differ."""
    for name, content in files.items():
        path = folder / name
        if not path.exists() or path.read_bytes() != content.encode():
            write_text(path, content)


def _files(papers: list[PaperView], picture: str | None) -> Iterator[tuple[str, str]]:
    """(path, text) of each page, picture and CSV file."""
    facts = [fact for paper in papers for fact in paper.result.facts if not fact.metric]
    ran = [fact for fact in facts if fact.cell]
    summary = summary_csv(ran)
    index = index_view(papers, picture, digest(summary.encode()))
    if picture is not None:
        yield f"figures/{accuracy_privacy.NAME}.svg", picture
    if index.panels:
        yield f"figures/{forest.NAME}.svg", render("forest.svg", panels=index.panels) + "\n"
    for paper in papers:
        yield f"papers/{paper.result.key}.html", render("paper.html", page=paper, up="../")
    yield "index.html", render("index.html", page=index, up="")
    yield "README.md", render("index.md", page=index) + "\n"
    shown = sorted((fact for fact in facts if fact.cell or fact.value), key=lambda fact: fact.value is None)
    yield "results.html", render("results.html", facts=shown, up="")
    yield (
        "ledger.html",
        render("ledger.html", page=ledger_view([fact for fact in ran if fact.private]), up=""),
    )
    yield "summary.csv", summary
    contrasts = (contrast for paper in papers for contrast in paper.result.contrasts)
    yield "contrasts.csv", contrasts_csv(contrasts)
