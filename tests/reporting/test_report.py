import re
from pathlib import Path

import pytest

from pipeline.errors import UserError
from pipeline.files import write_json
from pipeline.params import Settings
from pipeline.reporting import report
from pipeline.reporting.report import Report
from pipeline.results.schema import Record
from tests.keeping import lay_papers
from tests.reporting import lookup
from tests.reporting.lookup import page_of
from tests.reporting.made_up import dpsgd
from tests.reporting.markup import Elements


def page_with(root: Path, record: Record, declared: Settings) -> str:
    """The page of a report on one record, as read."""
    dpsgd.put(record, root)
    return lookup.text(report.write(declared, root))


def test_everything_is_written(written: Report, root: Path) -> None:
    names = {path.relative_to(root / "reports").as_posix() for path in written.files["davody2020"]}
    assert names == {
        *(f"tables/davody2020-t5.{suffix}" for suffix in ("md", "csv", "tex")),
        "figures/davody2020-t5.svg",
        *(f"figures/{key}-curves.svg" for key in dpsgd.ACCURACY),
    }
    assert all(path.exists() for path in written.files["davody2020"])


def test_the_page_runs_no_script_and_leads_to_the_runs_in_mlflow(written: Report) -> None:
    elements = Elements(page_of(written).read_text(encoding="utf-8")).elements
    assert "script" not in {tag for tag, _ in elements}
    links = [attributes.get("href") or "" for tag, attributes in elements if tag == "a"]
    assert any("searchFilter=tags.row" in link and dpsgd.PUBLIC in link for link in links)


def test_the_page_answers_both_questions_at_a_glance_and_says_what_made_its_numbers(written: Report) -> None:
    text = lookup.text(written)
    for expected in (
        # of the rows that are the paper's lines as they stand; batch norm was run with a change alone
        "12 the claimed ε holds 2 claim no privacy",
        "4 decided by a variant alone",
        f"{dpsgd.LITERAL}: the claimed privacy DOES NOT HOLD. Batch statistics couple the examples",
        "400 x PoissonSampled(0.0186182, Gaussian(1.1))",
        "prv (opacus 1.5.4): none (PRV failed: no luck)",
        "one training example; add or remove one",
        "any other choice of model and hyper-parameters",
        "cpu (x86_64, 2 threads)",
        "0123456789ab",
        "1 min 40 s for the replicas trained together",
        "N = 55,000",
        "batch 1024, learning rate 0.5, schedule constant, epochs 8.0",
        "What the paper leaves open",
    ):
        assert expected in text
    assert re.search(r"119 printed values .*\d+ agree \d+ at a budget of our own \(\d+ exploratory\)", text)


def test_the_search_behind_a_row_is_linked_once_it_is_there(tmp_path: Path) -> None:
    declared = dpsgd.settings()
    row = declared.rows[dpsgd.LAYER].model_copy(update={"search": "layer"})
    declared = declared.model_copy(update={"rows": {dpsgd.LAYER: row}})
    record = dpsgd.record(dpsgd.LAYER, declared)
    assert "search layer: not run" in page_with(tmp_path, record, declared)
    search = {"name": "layer", "candidates": [{}, {}], "chosen": {"epsilon=3": {"batch": 1024}}, "more": 1}
    write_json(tmp_path / "reports/searches/layer.json", search)
    text = page_with(tmp_path, record, declared)
    assert "2 candidates" in text
    assert "ε = 3: batch 1024" in text
    assert 'href="../searches/layer.json"' in (tmp_path / "reports/papers/davody2020.html").read_text()
    (tmp_path / "reports/searches/layer.json").write_text("[]")
    with pytest.raises(UserError, match=r"layer\.json: not a JSON object"):
        report.write(declared, tmp_path)


def test_with_nothing_run_the_report_says_so(tmp_path: Path) -> None:
    lay_papers(tmp_path)
    written = report.write(dpsgd.settings(), tmp_path)
    text, index = lookup.text(written), written.index.read_text()
    assert "Nothing has been run as in the paper yet." in text
    assert "119 not run" in text
    assert '<ol class="findings">' not in index
    assert "results that claim" not in index


def test_settings_are_shown_once_and_by_level_where_they_differ(tmp_path: Path) -> None:
    levels = [{"epsilon": level, "batch": 2048 if level == 7 else 1024} for level in dpsgd.LEVELS]
    declared = dpsgd.settings(**{dpsgd.PLAIN: {"levels": levels}})
    text = page_with(tmp_path, dpsgd.record(dpsgd.PLAIN, declared), declared)
    assert "settings learning rate 0.5, schedule constant, epochs 8.0" in text
    assert "ε = 7: batch 2048 ε = 3: batch 1024" in text


def test_texts_of_params_are_escaped_and_records_with_markup_refused(tmp_path: Path) -> None:
    script = "<script>alert(1)</script>"
    declared = dpsgd.settings(**{dpsgd.PLAIN: {"label": f"DPSGD (LeNet-5), {script}"}})
    record = dpsgd.record(dpsgd.PLAIN, declared)
    dpsgd.put(record, tmp_path)
    page = page_of(report.write(declared, tmp_path)).read_text()
    assert "&lt;script&gt;alert(1)" in page
    assert "<script" not in page
    made = record.provenance.model_copy(update={"device": script})
    with pytest.raises(UserError, match=r"origins\.0\.device"):
        page_with(tmp_path, record.model_copy(update={"origins": (made,)}), declared)


def test_what_came_from_elsewhere_says_so_on_its_page(tmp_path: Path) -> None:
    """Also where a later replica did."""
    declared = dpsgd.settings()
    record = dpsgd.record(dpsgd.PLAIN, declared)
    later = record.provenance.model_copy(update={"adopted": "rows.tar.gz (sha256:ab)"})
    record = record.model_copy(update={"origins": (record.provenance, later)})
    said = "trained and measured elsewhere, not measured again rows.tar.gz (sha256:ab)"
    assert said in page_with(tmp_path, record, declared)


def test_a_record_that_is_none_is_one_clear_line(tmp_path: Path) -> None:
    declared = dpsgd.fill(tmp_path)
    (tmp_path / "reports/runs" / f"{dpsgd.PLAIN}.json").write_text("{}")
    with pytest.raises(UserError, match=f"{dpsgd.PLAIN}.json: not what `dprepro` writes"):
        report.write(declared, tmp_path)
