"""Write the report under `reports/`: pages, pictures, CSV files, and numbers for DVC."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dprepro.pipeline.files import digest, write_text
from dprepro.pipeline.params import Settings
from dprepro.pipeline.reporting.drawing import accuracy_privacy, forest
from dprepro.pipeline.reporting.facts import PaperResult
from dprepro.pipeline.reporting.gather import gather
from dprepro.pipeline.reporting.pages.environment import render
from dprepro.pipeline.reporting.prose import counts
from dprepro.pipeline.reporting.summary import contrasts_csv, judged_numbers, summary_csv

REPORTS = Path("reports")


@dataclass(frozen=True)
class Report:
    """Results of a report, and paths of its pages and tables."""

    papers: tuple[PaperResult, ...]
    index: Path  # the first page
    pages: dict[str, Path]  # by paper
    tables: tuple[Path, ...]  # CSV files of all papers


def write(settings: Settings, root: Path = Path()) -> Report:
    """Write the report of everything that ``settings`` declares, from the records under ``root``.

    Unchanged files keep their modification time.

    Raises:
        UserError: a record, history, search or paper is invalid, or a file can't be written.
    """
    papers, folder = gather(settings, root), root / REPORTS
    picture = accuracy_privacy.draw(papers, accuracy_privacy.external_results(settings, root))
    for outputs in ("figures", "metrics", "papers"):  # DVC refuses a stage if one of its outputs is missing
        (folder / outputs).mkdir(parents=True, exist_ok=True)
    _put(dict(_files(papers, picture)), folder)
    pages = {paper.key: folder / "papers" / f"{paper.key}.html" for paper in papers}
    tables = (folder / "summary.csv", folder / "contrasts.csv")
    return Report(tuple(papers), folder / "index.html", pages, tables)


def _put(files: Mapping[str, str], folder: Path) -> None:
    """Write files that are missing or differ; delete numbers and pages of papers not among ``files``."""
    for name, content in files.items():
        path = folder / name
        if not path.exists() or path.read_bytes() != content.encode():
            write_text(path, content)
    for path in (*folder.glob("metrics/*.json"), *folder.glob("papers/*.html")):
        if path.relative_to(folder).as_posix() not in files:
            path.unlink()


def _files(papers: Sequence[PaperResult], picture: str | None) -> Iterator[tuple[str, str]]:
    """Yield (path, text) of each page, picture, CSV file and file of numbers for DVC."""
    facts = [fact for paper in papers for fact in paper.facts]
    ran = [fact for fact in facts if fact.cell]
    summary = summary_csv(ran)
    terms = {word: meaning for paper in papers for word, meaning in paper.paper.words.items()}
    panels = forest.panels([paper for paper in papers if paper.paper.published])
    if picture is not None:
        yield f"figures/{accuracy_privacy.NAME}.svg", picture
    if panels:
        yield f"figures/{forest.NAME}.svg", render("forest.svg", panels=panels) + "\n"
    for paper in papers:
        own = {"panels": forest.panels([paper]), "terms": paper.paper.words}
        yield f"papers/{paper.key}.html", render("paper.html", result=paper, **own, up="../")
        yield f"metrics/{paper.key}.json", _json(counts.metrics(paper))
    shown = {"papers": papers, "panels": panels, "picture": picture, "digest": digest(summary.encode())}
    yield "index.html", render("index.html", **shown, terms=terms, up="")
    yield "README.md", render("index.md", papers=papers) + "\n"
    told = sorted((fact for fact in facts if fact.cell or fact.value), key=lambda fact: fact.value is None)
    yield "results.html", render("results.html", facts=told, terms=terms, up="")
    private = [fact for fact in ran if fact.cell and fact.cell.guarantee.ledger.claimed_by]
    yield "ledger.html", render("ledger.html", facts=private, terms=terms, up="")
    yield "summary.csv", summary
    yield "contrasts.csv", contrasts_csv(contrast for paper in papers for contrast in paper.contrasts)
    for fact in ran:
        if (numbers := judged_numbers(fact)) and fact.line.line:
            yield f"metrics/{fact.table.name}-{fact.line.line.key}-{fact.level}.json", _json(numbers)


def _json(numbers: Mapping[str, float]) -> str:
    return json.dumps(numbers, indent=2) + "\n"
