"""Training that fails, spread over draws, and data smaller than the paper's, in every format."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from pipeline.params import Settings
from pipeline.reporting import report
from pipeline.reporting.drawing import levels
from pipeline.reporting.gather import gather
from pipeline.reporting.pages import summary as page
from pipeline.reporting.results import Cell, PaperResult, RowResult, TableResult
from pipeline.reporting.tables.reading import wide, wide_variants
from pipeline.reporting.wording import convergence_rule, verdict_words
from pipeline.results import records
from pipeline.training.evaluation import CONVERGED
from tests.keeping import keep
from tests.reporting import lookup
from tests.reporting.lookup import curves_of, drawn, markdown, page_of
from tests.reporting.made_up import dpsgd, noisy

MADE_UP = noisy  # whose report `report_of` is
AGREES = "agrees (0 of 3 seeds converge)"
REDUCED_PLAIN = noisy.PLAIN + noisy.REDUCED
TOO_FEW = "no convergence, but too few step sizes searched here: {}"


@pytest.fixture
def table(result: PaperResult) -> TableResult:
    return result.tables[0]


def row_of(root: Path, declared: Settings, key: str = noisy.PLAIN) -> RowResult:
    return next(row for table in gather(declared, root)[0].tables for row in table.rows if row.key == key)


def cell_of(root: Path, key: str = noisy.PLAIN, level: str = "sigma=1", **converged: Any) -> Cell:
    """A cell of a row alone, with the search as it lies there."""
    declared = noisy.settings()
    keep(noisy.record(key, declared, **converged), root)
    return row_of(root, declared, key).cells[level]


def source(table: TableResult, key: str, shown: Callable[[TableResult], pd.DataFrame] = wide) -> pd.Series:
    frame = shown(table)
    return frame[frame["source"].str.startswith(f"ours: {key}")].iloc[0]


def test_no_convergence_agrees_with_the_papers_words(table: TableResult) -> None:
    cell = table.rows[0].cells["sigma=1"]
    assert (cell.converged, cell.difference, verdict_words(cell), cell.caveat) == (0, None, AGREES, None)
    assert source(table, noisy.PLAIN)["1"] == f"**No-convergence: 9.85 ± 0.12 (n = 3)** {AGREES}"


def test_where_the_paper_saw_no_convergence_ours_lies_above_if_enough_seeds_converged(tmp_path: Path) -> None:
    noisy.search(tmp_path)
    verdicts = [
        verdict_words(cell_of(tmp_path, sigma_1=seeds)).partition(" (")[0]
        for seeds in ((True,) * 3, (True, False, True), (False,) * 3)
    ]
    assert verdicts == ["above", "inconclusive, 4 seeds would decide", "agrees"]
    # some seeds are counted
    cell_of(tmp_path, sigma_2=(True, False, True))
    shown = source(lookup.table(noisy.settings(), tmp_path), noisy.PLAIN)["2"]
    assert shown.startswith("**2 of 3 converged: 9.85 ± 0.12 (n = 3)** ")
    # a number of the paper is compared even where ours failed
    failed = cell_of(tmp_path, noisy.BATCH, "sigma=2", sigma_2=(False,) * 3)
    assert failed.difference == pytest.approx(failed.mean.value - 99.25)


def test_records_without_the_metric_count_as_converged(tmp_path: Path) -> None:
    declared = noisy.settings()
    keep(dpsgd.altered(noisy.record(noisy.PLAIN, declared), metrics={"test_accuracy": 0.0985}), tmp_path)
    cell = row_of(tmp_path, declared).cells["sigma=1"]
    assert (cell.converged, cell.caveat, cell.draws) == (3, None, None)


@pytest.mark.parametrize(
    ("rates", "caveat"),
    [
        ((0.001, 0.01, 0.1), None),
        ((0.1, 1.0, 10.0, 3.0), None),
        ((0.001, 0.1), TOO_FEW.format("0.001, 0.1")),
        ((0.01, 0.1, 0.5), TOO_FEW.format("0.01, 0.1, 0.5")),
        ((), TOO_FEW.format("none")),
        (None, "no convergence, without a search for step sizes"),
    ],
)
def test_failing_is_a_finding_only_after_a_wide_search(
    tmp_path: Path, rates: tuple[float, ...] | None, caveat: str | None
) -> None:
    if rates is not None:
        noisy.search(tmp_path, rates)
    cell = cell_of(tmp_path)
    assert cell.caveat == caveat
    assert verdict_words(cell) == ("too few step sizes tried" if caveat else AGREES)
    # where training succeeds nobody asks for a search
    assert row_of(tmp_path, noisy.settings()).cells["sigma=0"].caveat is None
    assert (f"[{caveat}]" in markdown(lookup.table(noisy.settings(), tmp_path))) == (caveat is not None)


def test_a_search_at_another_level_does_not_count(tmp_path: Path) -> None:
    noisy.search(tmp_path)
    path = records.search_path(noisy.PLAIN, tmp_path)
    path.write_text(path.read_text().replace('"sigma=1"', '"sigma=3"'))
    assert cell_of(tmp_path).caveat == TOO_FEW.format("none")
    assert row_of(tmp_path, noisy.settings()).cells["sigma=2"].caveat is None


def test_on_a_reduced_budget_nothing_is_judged(table: TableResult) -> None:
    cells = lookup.row(table, REDUCED_PLAIN).cells
    judged = {(cell.caveat, cell.verdict, cell.why) for cell in cells.values()}
    assert judged == {(noisy.SHORT, None, "too small a budget")}
    assert cells["sigma=0"].difference is not None
    shown = source(table, REDUCED_PLAIN, wide_variants)["source"]
    assert shown == f"ours: {REDUCED_PLAIN}, N = 55,000 [{noisy.SHORT}] [{dpsgd.EXAMPLES}]"


def test_a_further_level_stands_where_its_number_belongs(tmp_path: Path) -> None:
    declared = noisy.settings()
    record = noisy.record(noisy.PLAIN, declared)
    further = record.replicas[0].model_copy(update={"level": "sigma=0.3"})
    keep(record.model_copy(update={"replicas": [*record.replicas, further]}), tmp_path)
    levels = lookup.table(declared, tmp_path).levels
    assert levels == ("sigma=0", "sigma=0.01", "sigma=0.1", "sigma=0.3", "sigma=1", "sigma=2")


def test_the_csv_has_convergence_and_the_spread_over_draws(table: TableResult) -> None:
    frame = lookup.csv(table)
    failed, fine = frame.loc[(noisy.PLAIN, "sigma=1")], frame.loc[(noisy.PLAIN, "sigma=0")]
    expected = {"converged": 0, "verdict": AGREES, "paper_words": "No-convergence", "decides": True}
    assert {column: failed[column] for column in expected} == expected
    assert pd.isna(failed["difference"])
    assert (fine["converged"], fine["draws_std"], fine["budget"]) == (3, pytest.approx(0.12), "own")
    assert set(frame.loc[REDUCED_PLAIN, "caveat"]) == {noisy.SHORT}


def test_no_format_hides_that_training_failed_or_that_nothing_is_private(project: Path, text: str) -> None:
    markdown, latex = (
        (project / f"reports/tables/davody2020-t2.{suffix}").read_text() for suffix in ("md", "tex")
    )
    for shown in (markdown, latex, text):
        assert "No-convergence" in shown
    assert "A seed has converged when" in markdown
    assert f"{AGREES} No-convergence 9.85 ± 0.12 (3)" in text
    # a table without privacy says so once
    assert "| privacy |" not in markdown
    assert f"No privacy is claimed here, and none holds: {noisy.REASON}." in markdown
    assert "no guarantee" not in text.partition("Row by row")[0]


def test_the_glance_counts_words_that_agree_and_what_is_not_judged(result: PaperResult) -> None:
    shares = {share.word.counted: share.count for share in page.agreement(result)}
    # every value that the paper prints, whether or not a row is declared for it
    assert shares == {"agree with the paper": 2 * 5, "not run": 119 - 2 * 5}


def test_failed_training_has_no_point_and_reduced_budgets_are_named_in_figures(
    result: PaperResult, tmp_path: Path
) -> None:
    drawn(levels.draw(result.tables[0]), f"LeNet-5, ours ({noisy.SHORT})")
    failing: dict[str, Any] = {f"sigma_{sigma:g}": (False,) * 3 for sigma in noisy.ACCURACY[noisy.PLAIN]}
    cell_of(tmp_path, **failing)
    failed = drawn(levels.draw(lookup.table(noisy.settings(), tmp_path)), "LeNet-5, paper")
    assert "LeNet-5, ours" not in failed
    assert any(f"({noisy.SHORT})" in svg for svg in curves_of(result.tables[1]))


def test_a_figure_without_printed_values_reads_as_one(project: Path, text: str) -> None:
    markdown = (project / "reports/tables/davody2020-f1.md").read_text()
    assert "| paper |" not in markdown
    said = "The paper prints no values here as cells; its text says: a factor of order 7 in training time"
    assert said in markdown
    assert said in text
    svg = (project / "reports/figures/davody2020-f1.svg").read_text()
    assert "ours" in svg
    assert "paper" not in svg


@pytest.mark.parametrize(
    ("examples", "inconclusive"), [(95872, False), (86400, False), (86399, True), (96000, None)]
)
def test_a_smaller_training_set_is_marked(tmp_path: Path, examples: int, inconclusive: bool | None) -> None:
    declared = noisy.settings(**{noisy.PLAIN: {"table": "t4", "label": "BiLSTM-DL"}})
    keep(noisy.record(noisy.PLAIN, declared, examples), tmp_path)
    row = row_of(tmp_path, declared)
    mark = f"trained on {examples:,} of 96,000 examples"
    marked = [] if inconclusive is None else [(mark, inconclusive)]
    assert [(each.words, each.inconclusive) for each in row.marks] == marked
    assert (row.cells["sigma=0"].caveat == mark) == bool(inconclusive)
    assert f"N = {examples:,}" in source(lookup.table(declared, tmp_path, "t4"), noisy.PLAIN)["source"]
    if inconclusive:
        assert f"N = {examples:,}" in page_of(report.write(declared, tmp_path)).read_text()


def test_a_network_that_was_changed_after_training_has_not_failed_to_train(tmp_path: Path) -> None:
    declared = noisy.settings(**{noisy.PLAIN: {"table": "scaling", "label": "LeNet-5"}})
    keep(noisy.record(noisy.PLAIN, declared, sigma_1=(False,) * 3), tmp_path)
    cell = row_of(tmp_path, declared).cells["sigma=1"]
    assert (cell.converged, cell.untried) == (3, None)


def test_the_rule_that_is_declared_is_the_one_that_was_applied(table: TableResult) -> None:
    assert f"above {CONVERGED} times chance" in convergence_rule(table)
