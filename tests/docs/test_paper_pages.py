"""docs/papers: a page a paper, with the numbers of the tables it links and times that were measured."""

import re
from pathlib import Path

import pytest

from dprepro.pipeline.params import PAPERS, load
from dprepro.pipeline.results import records
from tests.docs.blocks import ROOT
from tests.there import there

OWN = load(ROOT / "params.yaml")
PAGES = sorted((ROOT / "docs/papers").glob("*.md"))
# A number that says what was measured or claimed: a share, an epsilon, a noise multiplier, a mu
NUMBER = re.compile(
    r"([\d.,]*\d) %|(?:epsilon|multiplier) of ([\d.,]*\d)|([\d.]+)-GDP|is ([\d.,]*\d million)"
)
UNITS = {"minute": 60, "minutes": 60, "hours": 3600}


def read(page: Path) -> str:
    return " ".join(page.read_text(encoding="utf-8").split())


def test_every_paper_has_a_page() -> None:
    known = {row.paper for row in OWN.rows.values()} & {path.stem for path in (ROOT / PAPERS).glob("*.yaml")}
    assert {page.stem for page in PAGES} == known


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_its_numbers_stand_in_the_tables_it_links(page: Path) -> None:
    text = read(page)
    report = (ROOT / f"reports/papers/{page.stem}.html").read_text(encoding="utf-8")
    places = re.findall(r"\]\([^)]*/reports/papers/([^)#]+)#([^)]+)\)", text)
    assert {name for name, _ in places} == {f"{page.stem}.html"}
    # a section ends where the next one begins
    starts = sorted(found.start() for found in re.finditer(r'<(?:section|div)[^>]* id="[\w-]+"', report))
    tables = ""
    for _, anchor in places:
        start = report.index(f'id="{anchor}"')
        tables += report[start : next((end for end in starts if end > start), len(report))]
    typed = [next(filter(None, groups)) for groups in NUMBER.findall(text)]
    assert typed
    for number in typed:
        assert re.search(rf"(?<![\d.]){re.escape(number)}(?![\d])", tables), number


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_its_times_are_those_that_were_measured(page: Path) -> None:
    lines = re.findall(r"^\| `([\w-]+)` \| .* \| (.*) \|$", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(lines) >= 5
    for key, told in lines:
        assert OWN.rows[key].paper == page.stem
        if told == "waits for a GPU":
            assert OWN.rows[key].needs == "gpu"
            continue
        run = there(records.read_run(key, ROOT))
        spans = {(replica.started, replica.ended) for replica in run.replicas}
        measured = sum(ended - started for started, ended in spans)
        number, unit = told.split()
        assert measured / 2 < int(number) * UNITS[unit] < 2 * measured, f"{key}: {measured / 60:.0f} minutes"
