from pathlib import Path

import pytest

from pipeline.reporting.gather import gather
from pipeline.reporting.report import Report
from pipeline.reporting.results import TableResult
from tests.reporting.lookup import row
from tests.reporting.made_up import dpsgd


def table_of(tmp_path: Path, key: str, edition: str = "official", **change: object) -> TableResult:
    """Table 5 with one row run, declared with ``change``."""
    declared = dpsgd.settings(**{key: change})
    dpsgd.put(dpsgd.record(key, declared, edition), tmp_path)
    return gather(declared, tmp_path)[0].tables[0]


def test_rows_are_grouped_under_the_papers_lines(written: Report) -> None:
    lines = written.papers[0].tables[0].lines
    assert [(line.label, [found.key for found in line.rows]) for line in lines] == [
        ("DPSGD (LeNet-5)", [dpsgd.PLAIN]),
        ("DPSGD (LN-LeNet-5)", [dpsgd.LAYER]),
        ("DPSGD (BN-LeNet-5)", [dpsgd.PUBLIC, dpsgd.LITERAL]),
        ("DPSGD (GN-LeNet-5)", [dpsgd.MISSING]),
    ]
    assert [found.variant for found in lines[2].rows] == ["public statistics", "Algorithm 1 to the letter"]
    assert lines[3].line is None


def test_a_cell_holds_ours_the_papers_and_their_difference(written: Report) -> None:
    cell = row(written.papers[0].tables[0], dpsgd.PLAIN).cells["epsilon=3"]
    assert cell.mean.n == 3
    assert cell.mean.value == pytest.approx(96.1, abs=0.1)
    assert cell.printed is not None
    assert cell.printed.value == 96.34
    assert cell.difference == pytest.approx(cell.mean.value - 96.34)


def test_a_cell_has_a_verdict_on_what_is_printed(written: Report) -> None:
    table = written.papers[0].tables[0]
    assert row(table, dpsgd.LAYER).cells["epsilon=1"].verdict.name == "agrees"
    assert row(table, dpsgd.LAYER).cells["epsilon=0.05"].verdict.name == "above"
    assert row(table, dpsgd.PLAIN).cells["epsilon=0.05"].verdict.name == "inconclusive"


def test_a_reduced_budget_shows_its_difference_and_is_not_judged(tmp_path: Path) -> None:
    found = row(table_of(tmp_path, dpsgd.LAYER, "official", budget="reduced"), dpsgd.LAYER)
    assert [mark.words for mark in found.marks] == ["reduced budget: 8 epochs", dpsgd.EXAMPLES]
    cell = found.cells["epsilon=3"]
    assert cell.difference is not None
    assert (cell.verdict, cell.why) == (None, "too small a budget")


def test_synthetic_data_are_marked_and_not_compared(tmp_path: Path) -> None:
    found = row(table_of(tmp_path, dpsgd.LAYER, "synthetic"), dpsgd.LAYER)
    assert [mark.words for mark in found.marks] == [dpsgd.BUDGET, "synthetic data", dpsgd.EXAMPLES]
    cell = found.cells["epsilon=3"]
    assert (cell.difference, cell.verdict, cell.why) == (None, None, "synthetic data")
    assert cell.printed is not None  # still shown


def test_another_edition_and_seeded_noise_are_marked_but_compared(tmp_path: Path) -> None:
    found = row(table_of(tmp_path, dpsgd.LAYER, "partial", reproducible=True), dpsgd.LAYER)
    assert [mark.words for mark in found.marks] == [
        dpsgd.BUDGET,
        "kmnist: partial edition",
        "mnist: partial edition",
        dpsgd.EXAMPLES,
        "noise seeded: no guarantee",
    ]
    assert found.cells["epsilon=3"].difference is not None
    assert found.cells["epsilon=3"].guarantee.state == "none_proven"


def test_numbers_of_other_settings_than_declared_are_marked(tmp_path: Path) -> None:
    dpsgd.put(dpsgd.record(dpsgd.LAYER, dpsgd.settings()), tmp_path)
    declared = dpsgd.settings(
        **{dpsgd.LAYER: {"settings": {"batch": 512, "epochs": 8, "learning_rate": 0.5}}}
    )
    found = row(gather(declared, tmp_path)[0].tables[0], dpsgd.LAYER)
    assert [mark.words for mark in found.marks] == [
        dpsgd.BUDGET,
        dpsgd.EXAMPLES,
        "settings have changed since this run",
    ]
    assert not found.comparable


def test_records_of_rows_no_longer_declared_are_left_out(tmp_path: Path) -> None:
    declared = dpsgd.fill(tmp_path)
    fewer = declared.model_copy(update={"rows": {dpsgd.LAYER: declared.rows[dpsgd.LAYER]}})
    assert [found.key for found in gather(fewer, tmp_path)[0].tables[0].rows] == [dpsgd.LAYER]


def test_rows_of_a_paper_and_table_of_ones_own_need_no_file(tmp_path: Path) -> None:
    declared = dpsgd.settings(**{dpsgd.LAYER: {"paper": "mine", "table": "first", "label": "idea"}})
    dpsgd.put(dpsgd.record(dpsgd.LAYER, declared), tmp_path)
    mine = gather(declared, tmp_path)[1]
    assert (mine.key, mine.tables[0].lines[0].label) == ("mine", "idea")
    assert mine.tables[0].levels == tuple(f"epsilon={level}" for level in dpsgd.LEVELS)
