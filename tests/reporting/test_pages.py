"""The index, the table of all results, and what is said of both elsewhere."""

import csv
import json
import re
from io import StringIO
from pathlib import Path

import pytest
from pydantic import ValidationError
from reporting.made_up import dpsgd
from reporting.test_report import LOADING, Elements, words

from pipeline.params import load as load_params
from pipeline.reporting import findings, papers, report
from pipeline.reporting.gather import gather
from pipeline.reporting.report import Report

ROOT = Path(__file__).parents[2]


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def test_every_page_loads_nothing_and_leads_somewhere(written: Report) -> None:
    folder = written.index.parent
    for path in (written.index, folder / "results.html", folder / "ledger.html", *written.pages.values()):
        elements = Elements(read(path))
        assert elements.open == [], path
        ids = {attributes.get("id") for _, attributes in elements.found}
        for tag, attributes in elements.found:
            assert tag not in {"link", "iframe", "img"}
            assert not LOADING & set(attributes), tag
            link = attributes.get("href") or ""
            if tag == "a" and link.startswith("#"):
                assert link[1:] in ids, link
            elif tag == "a" and not link.startswith("http"):
                place, _, anchor = link.partition("#")
                assert (path.parent / place).exists(), link
                if anchor and place.endswith(".html"):
                    assert f'id="{anchor}"' in read(path.parent / place), link


def test_the_index_says_what_was_found_with_the_numbers_of_the_records(written: Report) -> None:
    text = words(read(written.index))
    cell = next(row for row in written.papers[0].tables[0].rows if row.key == dpsgd.PUBLIC).cells["epsilon=7"]
    assert f"batch norm is sound, and reaches {cell.mean.value:.1f} % on MNIST" in text
    assert "has no guarantee, since one record moves every other record's clipped gradient" in text
    assert "DOES NOT HOLD" in text
    # a third of the findings speaks of rows that this example lacks
    assert "survive noise" not in text
    assert re.search(r"Of \d+ results that claim an ε, \d+ have a proven bound", text)
    overview = read(written.index.parent / "README.md")
    assert "batch norm is sound" in overview
    assert "](tables/davody2020-t5.md)" in overview


def test_every_result_is_a_line_of_the_summary(written: Report) -> None:
    lines = list(csv.DictReader(StringIO(read(written.index.parent / "summary.csv"))))
    cells = [cell for table in written.papers[0].tables for row in table.rows for cell in row.cells.values()]
    assert len(lines) == len(cells)
    one = next(line for line in lines if (line["row"], line["level"]) == (dpsgd.LITERAL, "ε = 7"))
    assert (one["privacy"], one["proven"]) == ("does not hold", "")
    page = read(written.index.parent / "results.html")
    assert page.count("<tr data-paper=") == len(lines)


def test_counts_are_there_for_dvc(written: Report) -> None:
    counts = json.loads(read(written.index.parent / f"metrics/{written.papers[0].key}.json"))
    cells = [cell for table in written.papers[0].tables for row in table.rows for cell in row.cells.values()]
    assert counts["results"] == len(cells)
    verdicts = ("agree", "differ", "not_judged", "wait_for_gpu", "not_run")
    assert counts["printed"] == sum(counts[name] for name in verdicts)
    assert 0 < counts["keep_it"] < counts["claim_privacy"] < len(cells)
    # DVC's tables take a metric of this name for something of their own
    assert "values" not in counts


def test_the_table_can_be_read_without_its_script(written: Report) -> None:
    page = read(written.index.parent / "results.html")
    assert '<form id="filter" hidden>' in page
    assert "<tr hidden" not in page


def test_with_nothing_run_the_index_has_no_findings(tmp_path: Path) -> None:
    page = read(report.write(dpsgd.settings(), tmp_path).index)
    assert '<ol class="findings">' not in page
    assert "results that claim" not in page


def test_a_finding_quotes_only_what_it_names() -> None:
    cells = {"one": {"row": "some-row", "at": "epsilon=3"}}
    findings.Finding.model_validate({"says": "It is {one.ours} %.", "cells": cells, "table": "t5"})
    for wrong in ("{two.ours}", "{one.secret}", "{one}"):
        with pytest.raises(ValidationError, match=r"allowed: one, each with \.ours, \.paper"):
            findings.Finding.model_validate({"says": wrong, "cells": cells, "table": "t5"})


def test_every_finding_of_the_papers_is_said_by_the_records_here() -> None:
    for result in gather(load_params(ROOT / "params.yaml"), ROOT):
        said = findings.said(result.paper.findings, result.tables)
        assert len(said) == len(papers.load(result.key).findings), result.key


def test_the_readme_says_what_the_report_says() -> None:
    """Its numbers are typed: here they are held to the report, whose numbers are read from the records."""
    text = read(ROOT / "README.md")
    found = text[text.index("## What it found") : text.index("## Start")]
    report_of = read(ROOT / "reports/README.md")
    shares = re.findall(r"(\d+\.\d+) %", found)
    assert len(shares) >= 6
    for share in shares:
        assert re.search(rf"\b{re.escape(share)}\d* %", report_of), share
    (claiming, kept) = re.findall(r"Of (\d+) results that claim an epsilon, (\d+) have", found)[0]
    assert f"Of {claiming} results that claim an ε, {kept} have" in words(read(ROOT / "reports/index.html"))
    counts = [json.loads(read(path)) for path in sorted((ROOT / "reports/metrics").glob("*.json"))]
    (printed, agree, differ) = re.findall(
        r"Of (\d+) values that the papers print, (\d+) agree with ours and (\d+) differ", words(found)
    )[0]
    for name, said in (("printed", printed), ("agree", agree), ("differ", differ)):
        assert sum(count[name] for count in counts) == int(said), name
