"""The whole report: tables, figures and the page, written under `reports/`."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from pipeline.files import write_text
from pipeline.reporting import page
from pipeline.reporting.drawing import levels as figures
from pipeline.reporting.figures.gradient_norms import norms
from pipeline.reporting.figures.layer_norms import layers
from pipeline.reporting.figures.relevance import relevance
from pipeline.reporting.figures.tradeoff import tradeoffs
from pipeline.reporting.gather import gather
from pipeline.reporting.judging import assess as claims
from pipeline.reporting.results import PaperResult, TableResult
from pipeline.reporting.tables import tables
from pipeline.settings import Settings

REPORTS = Path("reports")
PAGE = REPORTS / "index.html"


@dataclass(frozen=True)
class Report:
    """What was written, and from what."""

    papers: tuple[PaperResult, ...]
    files: dict[str, list[Path]]  # by paper: its tables and figures
    page: Path

    def tables(self, paper: str) -> dict[str, pd.DataFrame]:
        """A paper's tables for reading, by name."""
        return {
            table.name: tables.wide(table)
            for result in self.papers
            if result.key == paper
            for table in result.tables
        }


def write(settings: Settings, root: Path = Path()) -> Report:
    """Draw everything that ``settings`` declares from the records under ``root``; trains and changes nothing.

    Raises:
        UserError: a record, history, search or paper is not one, or a file can't be written.
    """
    papers = gather(settings, root)
    chapters = [_chapter(paper, root) for paper in papers]
    files = {chapter.result.key: list(_write_chapter(chapter, root / REPORTS)) for chapter in chapters}
    write_text(root / PAGE, page.render(chapters))
    return Report(tuple(papers), files, root / PAGE)


def _write_chapter(chapter: page.Chapter, folder: Path) -> Iterator[Path]:
    for drawn in chapter.tables:
        name = drawn.result.name
        for path, content in (
            (folder / "tables" / f"{name}.md", tables.markdown(drawn.result)),
            (folder / "tables" / f"{name}.csv", tables.csv(drawn.result)),
            (folder / "tables" / f"{name}.tex", tables.latex(drawn.result)),
            (folder / "figures" / f"{name}.svg", drawn.levels),
            (folder / "figures" / f"{name}-curves.svg", drawn.curves),
            (folder / "figures" / f"{name}-tradeoff.svg", drawn.tradeoffs),
            (folder / "figures" / f"{name}-layers.svg", drawn.layers),
            (folder / "figures" / f"{name}-norms.svg", drawn.norms),
            (folder / "figures" / f"{name}-relevance.svg", drawn.relevance),
        ):
            if content is not None:
                write_text(path, content)
                yield path


def _chapter(paper: PaperResult, root: Path) -> page.Chapter:
    return page.Chapter(
        paper,
        tuple(_drawn(table, root) for table in paper.tables),
        tuple(claims.assess(paper)),
    )


def _drawn(table: TableResult, root: Path) -> page.Drawn:
    return page.Drawn(
        table,
        figures.levels(table),
        figures.curves(table, root),
        tradeoffs(table),
        layers(table, root),
        norms(table, root),
        relevance(table),
    )
