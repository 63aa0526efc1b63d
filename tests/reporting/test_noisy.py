"""Training that fails, spread over draws, and data smaller than the paper's, in every format."""

from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from pipeline.params import Settings
from pipeline.reporting import report
from pipeline.reporting.drawing import levels
from pipeline.reporting.gather import gather
from pipeline.reporting.pages import summary as page
from pipeline.reporting.report import Report
from pipeline.reporting.results import Cell, PaperResult, RowResult, TableResult
from pipeline.reporting.tables import flat
from pipeline.reporting.tables.reading import wide, wide_variants
from pipeline.reporting.wording import CONVERGENCE_RULE, verdict_words
from pipeline.results import records
from pipeline.training.evaluation import CONVERGED
from tests.keeping import keep
from tests.reporting.lookup import curves_of, drawn, markdown, page_of
from tests.reporting.made_up import dpsgd, noisy
from tests.reporting.markup import words

MADE_UP = noisy  # whose report `report_of` is
AGREES = "agrees (0 of 3 seeds converge)"
REDUCED_PLAIN = noisy.PLAIN + noisy.REDUCED


@pytest.fixture
def table(result: PaperResult) -> TableResult:
    return result.tables[0]


@pytest.fixture
def read(project: Path, report_of: Report) -> str:
    """The page as read."""
    return words((project / "reports/papers/davody2020.html").read_text(encoding="utf-8"))


def one(root: Path, declared: Settings, key: str) -> RowResult:
    return next(row for table in gather(declared, root)[0].tables for row in table.rows if row.key == key)


def cell_of(root: Path, key: str = noisy.PLAIN, level: str = "sigma=1", **converged: Any) -> Cell:
    """A cell of a row alone, with the search as it lies there."""
    declared = noisy.settings()
    keep(noisy.record(key, declared, **converged), root)
    return one(root, declared, key).cells[level]


def source(table: TableResult, key: str, shown: Callable[[TableResult], pd.DataFrame] = wide) -> pd.Series:
    frame = shown(table)
    return frame[frame["source"].str.startswith(f"ours: {key}")].iloc[0]


def test_no_convergence_agrees_with_the_papers_words(table: TableResult) -> None:
    cell = table.rows[0].cells["sigma=1"]
    assert (cell.converged, cell.difference, verdict_words(cell), cell.caveat) == (0, None, AGREES, None)
    assert source(table, noisy.PLAIN)["1"] == f"**No-convergence: 9.85 ± 0.12 (n = 3)** {AGREES}"


def test_where_the_paper_saw_no_convergence_ours_lies_above_if_enough_seeds_converged(tmp_path: Path) -> None:
    noisy.search(tmp_path)
    found = [
        verdict_words(cell_of(tmp_path, sigma_1=seeds)).partition(" (")[0]
        for seeds in ((True,) * 3, (True, False, True), (False,) * 3)
    ]
    assert found == ["above", "inconclusive, 4 seeds would decide", "agrees"]


def test_a_number_of_the_paper_is_compared_even_where_ours_failed(tmp_path: Path) -> None:
    noisy.search(tmp_path)
    cell = cell_of(tmp_path, noisy.BATCH, "sigma=2", sigma_2=(False,) * 3)
    assert cell.difference == pytest.approx(cell.mean.value - 99.25)


def test_some_seeds_are_counted(tmp_path: Path) -> None:
    noisy.search(tmp_path)
    cell_of(tmp_path, sigma_2=(True, False, True))
    table = gather(noisy.settings(), tmp_path)[0].tables[0]
    assert source(table, noisy.PLAIN)["2"].startswith("**2 of 3 converged: 9.85 ± 0.12 (n = 3)** ")


def test_a_single_seed_cannot_tell(tmp_path: Path) -> None:
    noisy.search(tmp_path)
    declared = noisy.settings(**{noisy.PLAIN: {"seeds": 1}})
    keep(noisy.record(noisy.PLAIN, declared), tmp_path)
    cell = one(tmp_path, declared, noisy.PLAIN).cells["sigma=1"]
    assert (cell.verdict, cell.why) == (None, "one seed")


def test_records_without_the_metric_count_as_converged(tmp_path: Path) -> None:
    declared = noisy.settings()
    dpsgd.changed(noisy.record(noisy.PLAIN, declared), tmp_path, metrics={"test_accuracy": 0.0985})
    cell = one(tmp_path, declared, noisy.PLAIN).cells["sigma=1"]
    assert (cell.converged, cell.caveat, cell.draws) == (3, None, None)


@pytest.mark.parametrize(
    ("rates", "caveat"),
    [
        ((0.001, 0.01, 0.1), None),
        ((0.1, 1.0, 10.0, 3.0), None),
        ((0.001, 0.1), "no convergence, but too few step sizes searched here: 0.001, 0.1"),
        ((0.01, 0.1, 0.5), "no convergence, but too few step sizes searched here: 0.01, 0.1, 0.5"),
        ((), "no convergence, but too few step sizes searched here: none"),
    ],
)
def test_failing_is_a_finding_only_after_a_wide_search(
    tmp_path: Path, rates: tuple[float, ...], caveat: str | None
) -> None:
    noisy.search(tmp_path, rates)
    cell = cell_of(tmp_path)
    assert cell.caveat == caveat
    assert verdict_words(cell) == ("too few step sizes tried" if caveat else AGREES)
    # where training succeeds nobody asks for a search
    assert one(tmp_path, noisy.settings(), noisy.PLAIN).cells["sigma=0"].caveat is None
    text = markdown(gather(noisy.settings(), tmp_path)[0].tables[0])
    assert (f"[{caveat}]" in text) == (caveat is not None)


def test_without_a_search_failing_is_no_finding(tmp_path: Path) -> None:
    assert cell_of(tmp_path).caveat == "no convergence, without a search for step sizes"


def test_a_search_at_another_level_does_not_count(tmp_path: Path) -> None:
    noisy.search(tmp_path)
    path = records.search_path(noisy.PLAIN, tmp_path)
    path.write_text(path.read_text().replace('"sigma=1"', '"sigma=3"'))
    assert cell_of(tmp_path).caveat == "no convergence, but too few step sizes searched here: none"
    assert one(tmp_path, noisy.settings(), noisy.PLAIN).cells["sigma=2"].caveat is None


def test_on_a_reduced_budget_nothing_is_judged(table: TableResult) -> None:
    row = next(row for row in table.rows if row.key == REDUCED_PLAIN)
    assert {(cell.caveat, cell.verdict) for cell in row.cells.values()} == {(noisy.SHORT, None)}
    shown = source(table, REDUCED_PLAIN, wide_variants)["source"]
    assert shown == f"ours: {REDUCED_PLAIN}, N = 55,000 [{noisy.SHORT}] [{noisy.EXAMPLES}]"


def test_a_further_level_stands_where_its_number_belongs(tmp_path: Path) -> None:
    declared = noisy.settings()
    found = noisy.record(noisy.PLAIN, declared)
    further = found.replicas[0].model_copy(update={"level": "sigma=0.3"})
    keep(found.model_copy(update={"replicas": [*found.replicas, further]}), tmp_path)
    table = gather(declared, tmp_path)[0].tables[0]
    assert table.levels == ("sigma=0", "sigma=0.01", "sigma=0.1", "sigma=0.3", "sigma=1", "sigma=2")


def test_the_csv_has_convergence_and_the_spread_over_draws(table: TableResult) -> None:
    frame = pd.read_csv(StringIO(flat.csv(flat.of_table(table)))).set_index(["row", "level"])
    failed, fine = frame.loc[(noisy.PLAIN, "sigma=1")], frame.loc[(noisy.PLAIN, "sigma=0")]
    told = (failed["converged"], failed["verdict"], failed["paper_words"])
    assert told == (0, AGREES, "No-convergence")
    assert (failed["decides"], fine["budget"]) == (True, "own")
    assert pd.isna(failed["difference"])
    assert (fine["converged"], fine["draws_std"]) == (3, pytest.approx(0.12))
    assert set(frame.loc[REDUCED_PLAIN, "caveat"]) == {noisy.SHORT}


def test_no_format_hides_that_training_failed(project: Path, read: str) -> None:
    markdown = (project / "reports/tables/davody2020-t2.md").read_text()
    latex = (project / "reports/tables/davody2020-t2.tex").read_text()
    for text in (markdown, latex, read):
        assert "No-convergence" in text
    assert "A seed has converged when" in markdown
    assert f"{AGREES} No-convergence 9.85 ± 0.12 (3)" in read


def test_a_table_without_privacy_says_so_once(project: Path, read: str) -> None:
    markdown = (project / "reports/tables/davody2020-t2.md").read_text()
    assert "| privacy |" not in markdown
    assert f"No privacy is claimed here, and none holds: {noisy.REASON}." in markdown
    assert "no guarantee" not in read.partition("Row by row")[0]


def test_the_glance_counts_words_that_agree_and_what_is_not_judged(project: Path) -> None:
    shares = {
        share.word.counted: share.count for share in page.agreement(gather(noisy.settings(), project)[0])
    }
    # every value that the paper prints, whether or not a row is declared for it
    assert sum(shares.values()) == 119
    assert shares == {"agree with the paper": 2 * 5, "not run": 119 - 2 * 5}


def test_failed_training_has_no_point_and_reduced_budgets_are_named_in_figures(
    project: Path, tmp_path: Path
) -> None:
    table = gather(noisy.settings(), project)[0].tables[0]
    drawn(levels.draw(table), f"LeNet-5, ours ({noisy.SHORT})")
    cell_of(
        tmp_path,
        **dict[str, Any]({f"sigma_{sigma:g}": (False,) * 3 for sigma in noisy.ACCURACY[noisy.PLAIN]}),
    )
    failed = drawn(levels.draw(gather(noisy.settings(), tmp_path)[0].tables[0]), "LeNet-5, paper")
    assert "LeNet-5, ours" not in failed
    curves = curves_of(gather(noisy.settings(), project)[0].tables[1])
    assert any(f"({noisy.SHORT})" in svg for svg in curves)


def test_a_figure_without_printed_values_reads_as_one(project: Path, read: str) -> None:
    markdown = (project / "reports/tables/davody2020-f1.md").read_text()
    assert "| paper |" not in markdown
    said = "The paper prints no values here as cells; its text says: a factor of order 7 in training time"
    assert said in markdown
    svg = (project / "reports/figures/davody2020-f1.svg").read_text()
    assert "ours" in svg
    assert "paper" not in svg
    assert said in read


@pytest.mark.parametrize(
    ("examples", "inconclusive"), [(95872, False), (86400, False), (86399, True), (96000, None)]
)
def test_a_smaller_training_set_is_marked(tmp_path: Path, examples: int, inconclusive: bool | None) -> None:
    change = {"table": "t4", "label": "BiLSTM-DL"}
    declared = noisy.settings(**{noisy.PLAIN: change})
    keep(noisy.record(noisy.PLAIN, declared, examples), tmp_path)
    row = one(tmp_path, declared, noisy.PLAIN)
    mark = f"trained on {examples:,} of 96,000 examples"
    assert [(each.words, each.inconclusive) for each in row.marks] == (
        [] if inconclusive is None else [(mark, inconclusive)]
    )
    assert (row.cells["sigma=0"].caveat == mark) == bool(inconclusive)
    table = gather(declared, tmp_path)[0].tables[-1]
    assert f"N = {examples:,}" in source(table, noisy.PLAIN)["source"]
    assert f"N = {examples:,}" in page_of(report.write(declared, tmp_path)).read_text()


def test_every_row_shows_how_many_examples_it_had(tmp_path: Path) -> None:
    table = gather(dpsgd.fill(tmp_path), tmp_path)[0].tables[0]
    assert f"{dpsgd.PLAIN}, N = 55,000 [" in source(table, dpsgd.PLAIN)["source"]


def test_a_network_that_was_changed_after_training_has_not_failed_to_train(tmp_path: Path) -> None:
    declared = noisy.settings()
    rows = {
        key: row.model_copy(update={"table": "scaling", "label": "LeNet-5"}) if key == noisy.PLAIN else row
        for key, row in declared.rows.items()
    }
    keep(noisy.record(noisy.PLAIN, declared, sigma_1=(False,) * 3), tmp_path)
    cell = one(tmp_path, declared.model_copy(update={"rows": rows}), noisy.PLAIN).cells["sigma=1"]
    assert (cell.converged, cell.untried) == (3, None)


def test_the_rule_that_is_declared_is_the_one_that_was_applied() -> None:
    assert f"above {CONVERGED} times chance" in CONVERGENCE_RULE
