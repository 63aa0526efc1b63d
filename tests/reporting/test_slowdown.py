from pathlib import Path
from typing import Any

import pytest

from pipeline.errors import UserError
from pipeline.params import Settings
from pipeline.reporting import histories, report
from pipeline.reporting.gather import gather
from pipeline.reporting.judging import slowdown
from pipeline.reporting.judging.slowdown import Slowdown
from pipeline.reporting.results import RowResult
from tests.keeping import keep
from tests.reporting.lookup import page_of
from tests.reporting.made_up import noisy

REDUCED = noisy.CURVES + noisy.REDUCED


def row(root: Path, declared: Settings, key: str = noisy.CURVES) -> RowResult:
    return next(row for table in gather(declared, root)[0].tables for row in table.rows if row.key == key)


def measured(root: Path, start: str = "sigma=1", end: str = "sigma=10", **converged: Any) -> Slowdown:
    """Of Figure 1's row alone, with the curves that lie there."""
    declared = noisy.settings()
    keep(noisy.record(noisy.CURVES, declared, **converged), root)
    found = slowdown.measure(row(root, declared), start, end)
    assert found is not None
    return found


def test_the_ratio_is_of_epochs_to_the_threshold_between_epochs(tmp_path: Path) -> None:
    noisy.history(noisy.CURVES, tmp_path)
    found = measured(tmp_path)
    assert found.threshold == pytest.approx(noisy.BEST - 0.005)
    # straight lines: both reach the same share of their way, so ratios are those of the epochs they need
    assert found.ratio is not None
    assert found.epochs == pytest.approx((5 * 0.985 / 0.99, 26 * 0.985 / 0.99))
    assert found.ratio.value == pytest.approx(5.2)
    assert found.ratio.half == pytest.approx(4.3027 * 0.2 / 3**0.5, rel=1e-3)
    assert found.ratio.n == 3
    assert (found.problem, found.caveat) == (None, None)


def test_the_threshold_is_the_lower_levels_best(tmp_path: Path) -> None:
    noisy.history(
        noisy.CURVES,
        tmp_path,
        curve=lambda *at: noisy.straight(*at) * (0.9 if at[0] == 10 else 1),
    )
    found = measured(tmp_path)
    assert found.threshold == pytest.approx(0.9 * noisy.BEST - 0.005)


def test_training_that_failed_has_no_slow_down(tmp_path: Path) -> None:
    noisy.history(noisy.CURVES, tmp_path)
    found = measured(tmp_path, sigma_10=(True, False, True))
    assert (found.ratio, found.problem) == (None, "only 2 of 3 seeds converged at σ = 10")


def test_a_seed_that_never_comes_so_far_leaves_no_ratio(tmp_path: Path) -> None:
    noisy.history(
        noisy.CURVES,
        tmp_path,
        curve=lambda *at: noisy.straight(*at) * (0.98 if at[:2] == (10, 1) else 1),
    )
    # the others are above the mean of all, and the threshold half a point below it is above the slow one
    assert measured(tmp_path).problem == "only 2 of 3 seeds came so far"


def test_without_curves_there_is_no_ratio(tmp_path: Path) -> None:
    assert measured(tmp_path).problem == "there are no training curves"


def test_a_first_epoch_that_reaches_it_resolves_nothing(tmp_path: Path) -> None:
    noisy.history(
        noisy.CURVES,
        tmp_path,
        curve=lambda *at: noisy.BEST if at[0] == 1 else noisy.straight(*at),
    )
    found = measured(tmp_path)
    assert found.caveat == "reached within the first epoch at σ = 1"
    assert "[reached within the first epoch at σ = 1]" in found.texts[-1]


def test_a_level_that_was_not_run_is_not_measured(tmp_path: Path) -> None:
    declared = noisy.settings()
    assert slowdown.measure(row(tmp_path, declared), "sigma=1", "sigma=10") is None
    assert slowdown.measure(None, "sigma=1", "sigma=10") is None


def test_markdown_and_page_show_it_with_its_rule_and_its_budget(tmp_path: Path) -> None:
    written = report.write(noisy.fill(tmp_path), tmp_path)
    text = (tmp_path / "reports/tables/davody2020-f1.md").read_text()
    assert slowdown.RULE in text
    lines = [line for line in text.splitlines() if "σ = 1 → σ = 10" in line]
    assert lines[0].startswith(
        f"| {noisy.CURVES}, N = 55,000 [own budget: 40 epochs] | "
        "σ = 1 → σ = 10 | 98.50 % | 5.0 → 25.9 | 5.20 ± 0.50"
    )
    assert lines[1].startswith(f"| {REDUCED}, N = 55,000 [{noisy.SHORT}] |")
    page = page_of(written).read_text()
    assert "5.20 ± 0.50 (n = 3)" in page
    _, _, shown = page.partition("<caption>Slow-down in Figure 1")
    rows = shown.partition("</table>")[0].split("<tr>")[2:]
    assert len(rows) == 10
    for one in rows:
        assert (REDUCED in one) == (noisy.SHORT in one)


def test_a_history_is_read_by_seed_in_order_of_epochs(tmp_path: Path) -> None:
    path = tmp_path / "row.csv"
    path.write_text(
        "level,seed,step,epoch,metric,value\n"
        "sigma=1,0,20,2.0,accuracy,0.8\nsigma=1,1,20,2.0,accuracy,0.6\nsigma=1,0,10,1.0,accuracy,0.5\n"
    )
    assert histories.read(path) == {"accuracy": {"sigma=1": {0: [(1.0, 0.5), (2.0, 0.8)], 1: [(2.0, 0.6)]}}}
    path.write_text("level,seed\nsigma=1,0\n")
    with pytest.raises(UserError, match="not a history"):
        histories.read(path)
