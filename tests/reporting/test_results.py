from pathlib import Path

import pytest
from reporting import example
from reporting.found import row

from pipeline.reporting.gather import gather
from pipeline.reporting.report import Report
from pipeline.reporting.results import TableResult


def table_of(tmp_path: Path, key: str, edition: str = "official", **change: object) -> TableResult:
    """Table 5 with one row run, declared with ``change``."""
    declared = example.settings(**{key: change})
    example.put(example.record(key, declared, edition), tmp_path)
    return gather(declared, tmp_path)[0].tables[0]


def test_rows_are_grouped_under_the_papers_lines(written: Report) -> None:
    lines = written.papers[0].tables[0].lines
    assert [(line.label, [found.key for found in line.rows]) for line in lines] == [
        ("DPSGD (LeNet-5)", [example.PLAIN]),
        ("DPSGD (LN-LeNet-5)", [example.LAYER]),
        ("DPSGD (BN-LeNet-5)", [example.PUBLIC, example.LITERAL]),
        ("DPSGD (GN-LeNet-5)", [example.MISSING]),
    ]
    assert [found.variant for found in lines[2].rows] == ["public statistics", "Algorithm 1 to the letter"]
    assert lines[3].line is None


def test_a_cell_holds_ours_the_papers_and_their_difference(written: Report) -> None:
    cell = row(written.papers[0].tables[0], example.PLAIN).cells["epsilon=3"]
    assert cell.mean.n == 3
    assert cell.mean.value == pytest.approx(96.1, abs=0.1)
    assert cell.printed is not None
    assert cell.printed.value == 96.34
    assert cell.difference == pytest.approx(cell.mean.value - 96.34)


def test_agreement_is_with_one_more_run_of_ours(written: Report) -> None:
    table = written.papers[0].tables[0]
    assert row(table, example.LAYER).cells["epsilon=1"].agreement == "agrees"
    assert row(table, example.LAYER).cells["epsilon=0.05"].agreement == "above"
    assert row(table, example.PLAIN).cells["epsilon=0.05"].agreement == "below"


def test_a_reduced_budget_shows_its_difference_and_is_not_judged(tmp_path: Path) -> None:
    found = row(table_of(tmp_path, example.LAYER, "official", budget="reduced"), example.LAYER)
    assert [mark.words for mark in found.marks] == ["reduced budget"]
    cell = found.cells["epsilon=3"]
    assert cell.difference is not None
    assert cell.agreement is None


def test_synthetic_data_are_marked_and_not_compared(tmp_path: Path) -> None:
    found = row(table_of(tmp_path, example.LAYER, "synthetic"), example.LAYER)
    assert [mark.words for mark in found.marks] == ["synthetic data"]
    cell = found.cells["epsilon=3"]
    assert (cell.difference, cell.agreement) == (None, None)
    assert cell.printed is not None  # still shown


def test_another_edition_and_seeded_noise_are_marked_but_compared(tmp_path: Path) -> None:
    found = row(table_of(tmp_path, example.LAYER, "partial", reproducible=True), example.LAYER)
    assert [mark.words for mark in found.marks] == [
        "kmnist: partial edition",
        "mnist: partial edition",
        "noise seeded: no guarantee",
    ]
    assert found.cells["epsilon=3"].difference is not None
    assert found.cells["epsilon=3"].guarantee.state == "broken"


def test_numbers_of_other_settings_than_declared_are_marked(tmp_path: Path) -> None:
    example.put(example.record(example.LAYER, example.settings()), tmp_path)
    declared = example.settings(
        **{example.LAYER: {"settings": {"batch": 512, "epochs": 8, "learning_rate": 0.5}}}
    )
    found = row(gather(declared, tmp_path)[0].tables[0], example.LAYER)
    assert [mark.words for mark in found.marks] == ["settings have changed since this run"]
    assert not found.comparable


def test_records_of_rows_no_longer_declared_are_left_out(tmp_path: Path) -> None:
    declared = example.fill(tmp_path)
    fewer = declared.model_copy(update={"rows": {example.LAYER: declared.rows[example.LAYER]}})
    assert [found.key for found in gather(fewer, tmp_path)[0].tables[0].rows] == [example.LAYER]


def test_rows_of_a_paper_and_table_of_ones_own_need_no_file(tmp_path: Path) -> None:
    declared = example.settings(**{example.LAYER: {"paper": "mine", "table": "first", "label": "idea"}})
    example.put(example.record(example.LAYER, declared), tmp_path)
    mine = gather(declared, tmp_path)[1]
    assert (mine.key, mine.tables[0].lines[0].label) == ("mine", "idea")
    assert mine.tables[0].levels == tuple(f"epsilon={level}" for level in example.LEVELS)
