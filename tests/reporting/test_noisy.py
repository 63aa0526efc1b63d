"""Training that fails, spread over draws, and data smaller than the paper's, in every format."""

from pathlib import Path
from typing import Any

import pytest

from dprepro.pipeline.params import Settings
from dprepro.pipeline.reporting.drawing import levels
from dprepro.pipeline.reporting.gather import gather
from dprepro.pipeline.reporting.results import Cell, RowResult
from dprepro.pipeline.results import records
from tests.keeping import keep
from tests.reporting import lookup
from tests.reporting.lookup import drawn, shown
from tests.reporting.made_up import dpsgd, noisy

UNDECIDED = "inconclusive (0 of 3 seeds converge; about 36 seeds would decide it)"
REDUCED_PLAIN = noisy.PLAIN + noisy.REDUCED
TOO_FEW = "no convergence after too narrow a search of step sizes: {}"
UNSEARCHED = "no convergence (step sizes were not searched at this level)"


def row_of(root: Path, declared: Settings, key: str = noisy.PLAIN) -> RowResult:
    return next(row for table in gather(declared, root)[0].tables for row in table.rows if row.key == key)


def cell_of(root: Path, key: str = noisy.PLAIN, level: str = "sigma=1", **converged: Any) -> Cell:
    """A cell of a row alone, with the search as it lies there."""
    declared = noisy.settings()
    keep(noisy.record(key, declared, **converged), root)
    return row_of(root, declared, key).cells[level]


def judged_words(root: Path, **converged: Any) -> str:
    """The verdict at sigma = 1 of the plain row alone."""
    cell_of(root, **converged)
    return lookup.value(lookup.table(noisy.settings(), root), noisy.PLAIN, "sigma=1").words


def test_where_the_paper_saw_no_convergence_ours_lies_above_if_enough_seeds_converged(tmp_path: Path) -> None:
    noisy.search(tmp_path)
    verdicts = [
        judged_words(tmp_path, sigma_1=seeds) for seeds in ((True,) * 3, (True, False, True), (False,) * 3)
    ]
    assert verdicts == [
        # by a search of one candidate, and without curves
        "not judged (above): edge of the grid, still learning",
        "inconclusive (2 of 3 seeds converge; about 4 seeds would decide it)",
        UNDECIDED,
    ]
    # some seeds are counted
    cell_of(tmp_path, sigma_2=(True, False, True))
    assert "2 of 3 converged 9.85 ± 0.12 (3)" in shown(lookup.table(noisy.settings(), tmp_path))
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
        ((), UNSEARCHED),
        (None, "no convergence (step sizes were not searched)"),
    ],
)
def test_failing_is_a_finding_only_after_a_wide_search(
    tmp_path: Path, rates: tuple[float, ...] | None, caveat: str | None
) -> None:
    if rates is not None:
        noisy.search(tmp_path, rates)
    cell = cell_of(tmp_path)
    assert cell.caveat == caveat
    assert judged_words(tmp_path) == ("too narrow a search of step sizes" if caveat else UNDECIDED)
    # where training succeeds nobody asks for a search
    assert row_of(tmp_path, noisy.settings()).cells["sigma=0"].caveat is None
    assert caveat is None or caveat in shown(lookup.table(noisy.settings(), tmp_path))


def test_a_search_at_another_level_does_not_count(tmp_path: Path) -> None:
    noisy.search(tmp_path)
    path = records.search_path(noisy.PLAIN, tmp_path)
    path.write_text(path.read_text().replace('"sigma=1"', '"sigma=3"'))
    assert cell_of(tmp_path).caveat == UNSEARCHED
    assert row_of(tmp_path, noisy.settings()).cells["sigma=2"].caveat is None


def test_a_further_level_stands_where_its_number_belongs(tmp_path: Path) -> None:
    declared = noisy.settings()
    record = noisy.record(noisy.PLAIN, declared)
    further = record.replicas[0].model_copy(update={"level": "sigma=0.3"})
    keep(record.model_copy(update={"replicas": [*record.replicas, further]}), tmp_path)
    levels = lookup.table(declared, tmp_path).levels
    assert levels == ("sigma=0", "sigma=0.01", "sigma=0.1", "sigma=0.3", "sigma=1", "sigma=2")


def test_failed_training_has_no_point(tmp_path: Path) -> None:
    failing: dict[str, Any] = {f"sigma_{sigma:g}": (False,) * 3 for sigma in noisy.ACCURACY[noisy.PLAIN]}
    cell_of(tmp_path, **failing)
    failed = drawn(levels.draw(lookup.table(noisy.settings(), tmp_path)), "LeNet-5, paper")
    assert "LeNet-5, ours" not in failed


@pytest.mark.parametrize(
    ("examples", "inconclusive"), [(95872, False), (86400, False), (86399, True), (96000, None)]
)
def test_a_smaller_training_set_is_marked(tmp_path: Path, examples: int, inconclusive: bool | None) -> None:
    declared = noisy.settings(**{noisy.PLAIN: {"table": "t4", "line": "bilstm"}})
    keep(noisy.record(noisy.PLAIN, declared, examples), tmp_path)
    row = row_of(tmp_path, declared)
    mark = f"trained on {examples:,} of 96,000 examples"
    marked = [] if inconclusive is None else [(mark, inconclusive)]
    assert [(each.words, each.inconclusive) for each in row.caveats] == marked
    assert (row.cells["sigma=0"].caveat == mark) == bool(inconclusive)
    told = f"N = {examples:,}" if inconclusive is None else mark
    assert f"{noisy.PLAIN} {told}" in shown(lookup.table(declared, tmp_path, "t4"))


def test_a_network_that_was_changed_after_training_has_not_failed_to_train(tmp_path: Path) -> None:
    declared = noisy.settings(**{noisy.PLAIN: {"table": "scaling", "label": "LeNet-5"}})
    keep(noisy.record(noisy.PLAIN, declared, sigma_1=(False,) * 3), tmp_path)
    cell = row_of(tmp_path, declared).cells["sigma=1"]
    assert (cell.converged, cell.untried) == (3, None)
