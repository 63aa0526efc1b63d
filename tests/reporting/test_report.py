from dataclasses import replace
from pathlib import Path

import pytest

from dprepro.errors import UserError
from dprepro.pipeline.params import Settings
from dprepro.pipeline.reporting import report
from dprepro.pipeline.reporting.drawing import levels
from dprepro.pipeline.reporting.pages import environment
from dprepro.pipeline.reporting.report import Report
from dprepro.pipeline.results.schema import Record
from tests.keeping import keep_search, lay_papers
from tests.reporting import lookup
from tests.reporting.lookup import drawn, page_of
from tests.reporting.made_up import dpsgd


def page_with(root: Path, record: Record, declared: Settings) -> str:
    """The page of a report on one record, as read."""
    dpsgd.put(record, root)
    return lookup.text(report.write(declared, root))


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures take seconds, and are looked at elsewhere."""
    monkeypatch.setitem(environment._environment().globals, "plot", lambda table: None)


@pytest.mark.usefixtures("undrawn")
def test_the_search_behind_a_row_is_linked_once_it_is_there(tmp_path: Path) -> None:
    declared = dpsgd.settings()
    row = declared.rows[dpsgd.LAYER].model_copy(update={"search": "layer"})
    declared = declared.model_copy(update={"rows": {dpsgd.LAYER: row}})
    record = dpsgd.record(dpsgd.LAYER, declared)
    assert "search layer: not run" in page_with(tmp_path, record, declared)
    keep_search(tmp_path, "layer", dpsgd.LAYER, {"settings": {"batch": 1024}}, {"settings": {"batch": 512}})
    text = page_with(tmp_path, record, declared)
    assert "2 candidates" in text
    assert "ε = 3: batch 1024" in text
    assert 'href="../searches/layer.json"' in (tmp_path / "reports/papers/davody2020.html").read_text()
    (tmp_path / "reports/searches/layer.json").write_text("[]")
    with pytest.raises(UserError, match=r"layer\.json: not what `dprepro` writes"):
        report.write(declared, tmp_path)


@pytest.mark.usefixtures("undrawn")
def test_with_nothing_run_the_report_says_so(tmp_path: Path) -> None:
    lay_papers(tmp_path)
    removed = tmp_path / "reports/papers/removed.html"  # of a paper without rows
    removed.parent.mkdir(parents=True)
    removed.touch()
    written = report.write(dpsgd.settings(), tmp_path)
    assert not removed.exists()
    text, index = lookup.text(written), written.index.read_text()
    assert "No such row has run yet." in text
    assert "119 not run" in text
    assert '<ol class="findings">' not in index
    assert "have a claimed ε" not in index


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


def test_without_numbers_nothing_is_drawn(tmp_path: Path, written: Report) -> None:
    nothing = lookup.table(dpsgd.settings(**{key: {"paper": "mine"} for key in dpsgd.LABELS}), tmp_path)
    assert levels.draw(nothing) is None
    # a line that was only accounted for, at a level of its own, has neither a point nor a printed value
    table = written.papers[0].tables[0]
    lines = tuple(replace(line, rows=()) for line in table.lines)
    assert levels.draw(replace(table, levels=("noise_multiplier=1.1",), lines=lines)) is None


def test_a_label_with_dollars_is_no_formula(tmp_path: Path) -> None:
    label = r"at $\eps$ and 5$"
    declared = dpsgd.settings(**{dpsgd.PLAIN: {"label": label, "line": None}})
    dpsgd.put(dpsgd.record(dpsgd.PLAIN, declared), tmp_path)
    drawn(levels.draw(lookup.table(declared, tmp_path)), label)


@pytest.mark.usefixtures("undrawn")
def test_what_came_from_elsewhere_says_so_on_its_page(tmp_path: Path) -> None:
    """Also where a later replica did."""
    declared = dpsgd.settings()
    record = dpsgd.record(dpsgd.PLAIN, declared)
    later = record.provenance.model_copy(update={"adopted": "rows.tar.gz (sha256:ab)"})
    record = record.model_copy(update={"origins": (record.provenance, later)})
    said = "trained elsewhere; imported with its test results from rows.tar.gz (sha256:ab)"
    assert said in page_with(tmp_path, record, declared)
