"""Writes the report under `reports/`: pages, pictures, CSV files, Markdown, and numbers for DVC.

Each page is one file, from a template in ``pages/``. It loads nothing from elsewhere and is readable without
scripts.
"""

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from inspect import getmembers, isfunction
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
from markupsafe import Markup

from dprepro.pipeline.files import digest, write_text
from dprepro.pipeline.ledgers.composition import data_budgets
from dprepro.pipeline.ledgers.sentences import composition, data_budget, delta
from dprepro.pipeline.params import Settings
from dprepro.pipeline.reporting import pictures, views, wording
from dprepro.pipeline.reporting.claims import claims
from dprepro.pipeline.reporting.effects import effects
from dprepro.pipeline.reporting.table import read_sources, results, rounded, to_csv
from dprepro.pipeline.reporting.views import Cell, Report, cell

REPORTS = Path("reports")
FOLDERS = ("figures", "metrics", "papers", "rows")  # DVC refuses a stage if one of its outputs is missing


def gather(settings: Settings, root: Path = Path()) -> Report:
    """Make the tables of everything that ``settings`` declares, from the records under ``root``.

    Raises:
        UserError: a record, search or paper is invalid.
    """
    sources = read_sources(settings, root)
    table = results(sources)
    picture = pictures.draw(table)
    return Report(sources, table, effects(table, sources), tuple(claims(table, sources)), picture)


def write(settings: Settings) -> Path:
    """Write the report, and return the path of its first page. Unchanged files keep their modification time.

    Raises:
        UserError: a record, history, search or paper is invalid, or a file can't be written.
    """
    report = gather(settings)
    for outputs in FOLDERS:
        (REPORTS / outputs).mkdir(parents=True, exist_ok=True)
    _put(dict(_files(report)))
    return REPORTS / "index.html"


def _put(files: Mapping[str, str]) -> None:
    """Write files that are missing or differ; delete files of an earlier report."""
    for name, content in files.items():
        path = REPORTS / name
        if not path.exists() or path.read_bytes() != content.encode():
            write_text(path, content)
    for path in (path for outputs in FOLDERS for path in REPORTS.glob(f"{outputs}/*")):
        if path.relative_to(REPORTS).as_posix() not in files:
            path.unlink()


def _files(report: Report) -> Iterator[tuple[str, str]]:
    """Yield (path, text) of each page, picture, CSV file and file of numbers for DVC."""
    summary = to_csv(report.table[report.table["ours"].notna() | report.table["printed"].notna()])
    budgets = data_budgets(report.sources.settings)
    if report.picture is not None:
        yield f"figures/{pictures.NAME}.svg", report.picture
    shown = {"budgets": budgets, "digest": digest(summary.encode())}
    yield "index.html", render("index.html", report=report, **shown, up="")
    for page in ("ledger", "results", "effects"):
        yield f"{page}.html", render(f"{page}.html", report=report, up="")
    yield "README.md", render("index.md", report=report) + "\n"
    for view in report.papers:
        if view.paper.published:
            yield f"papers/{view.key}.html", render("paper.html", report=report, view=view, up="../")
            yield f"{view.key}.md", render("paper.md", view=view) + "\n"
    for key, record in report.sources.records.items():
        of_row = report.table[report.table["row"] == key].to_dict("records")
        cells = [cell(line, report.sources) for line in of_row]
        declared = report.sources.settings.lines[key]
        yield (
            f"rows/{key}.html",
            render(
                "row.html",
                report=report,
                record=record,
                declared=declared,
                cells=cells,
                up="../",
            ),
        )
    yield "summary.csv", summary
    yield "contrasts.csv", to_csv(report.effects)
    for each in report.lines:
        if each.judged:
            name = "-".join(each.line[name] for name in ("paper", "table", "line", "level"))
            yield f"metrics/{name}.json", json.dumps(_numbers(each), indent=2) + "\n"


def _numbers(value: Cell) -> dict[str, float]:
    """Rounded numbers of a judged printed value for `dvc metrics show`."""
    names = {"paper_value": "paper", "ours": "ours", "half_width": "plus_minus", "epsilon_upper": "epsilon"}
    found = rounded(value.line, value.table)
    return {name: found[column] for column, name in names.items() if column in found}


def render(template: str, **values: Any) -> str:
    """Fill a template with results, without a newline at the end; HTML templates escape text."""
    return _environment().get_template(template).render(values).rstrip("\n")


def anchor(heading: str) -> str:
    """Anchor of a Markdown heading, as GitHub and the site's pages have it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "pages"),
        autoescape=select_autoescape(["html"]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    for module in (wording, views):
        environment.filters |= dict(getmembers(module, isfunction))
    environment.filters |= {"composition": composition, "data_budget": data_budget, "delta": delta}
    environment.filters["inline"] = lambda svg: Markup(svg[svg.index("<svg") :])
    environment.filters["anchor"] = anchor
    environment.filters["slug"] = lambda status: status.replace(" ", "-")
    environment.globals |= {"SIGNS": views.SIGNS, "VALUES": views.VALUES, "PARTS": views.PARTS}
    return environment
