from pathlib import Path
from typing import Any

import pytest

from pipeline.errors import UserError
from pipeline.reporting import histories
from pipeline.reporting.claims import curves
from pipeline.reporting.claims.curves import Slowdown
from tests.keeping import keep
from tests.reporting import lookup
from tests.reporting.made_up import noisy

REDUCED = noisy.CURVES + noisy.REDUCED


def measured(root: Path, **converged: Any) -> Slowdown:
    """Of Figure 1's row alone, with the curves that lie there."""
    declared = noisy.settings()
    row = lookup.row(lookup.table(declared, root, "f1"), noisy.CURVES)
    assert curves.measure(row, "sigma=1", "sigma=10") is None  # before it was run
    keep(noisy.record(noisy.CURVES, declared, **converged), root)
    row = lookup.row(lookup.table(declared, root, "f1"), noisy.CURVES)
    measured = curves.measure(row, "sigma=1", "sigma=10")
    assert measured is not None
    return measured


def test_the_ratio_is_of_epochs_to_the_threshold_between_epochs(tmp_path: Path) -> None:
    noisy.history(noisy.CURVES, tmp_path)
    slower = measured(tmp_path)
    assert slower.threshold == pytest.approx(noisy.BEST - 0.005)
    # straight lines: both reach the same share of their way, so ratios are those of the epochs they need
    assert slower.ratio is not None
    assert slower.epochs == pytest.approx((5 * 0.985 / 0.99, 26 * 0.985 / 0.99))
    assert slower.ratio.value == pytest.approx(5.2)
    assert slower.ratio.half == pytest.approx(4.3027 * 0.2 / 3**0.5, rel=1e-3)
    assert slower.ratio.n == 3
    assert (slower.problem, slower.caveat) == (None, None)


def test_the_threshold_is_the_lower_levels_best(tmp_path: Path) -> None:
    noisy.history(noisy.CURVES, tmp_path, curve=lambda *at: noisy.straight(*at) * (0.9 if at[0] == 10 else 1))
    assert measured(tmp_path).threshold == pytest.approx(0.9 * noisy.BEST - 0.005)


def test_a_first_epoch_that_reaches_it_resolves_nothing(tmp_path: Path) -> None:
    noisy.history(noisy.CURVES, tmp_path, curve=lambda *at: noisy.BEST if at[0] == 1 else noisy.straight(*at))
    slower = measured(tmp_path)
    assert slower.caveat == "reached within the first epoch at σ = 1"


@pytest.mark.parametrize(
    ("slow", "converged", "problem"),
    [
        (None, (True,) * 3, "there are no training curves"),
        (1.0, (True, False, True), "only 2 of 3 seeds converged at σ = 10"),
        # the others are above the mean of all, and the threshold half a point below it is above the slow one
        (0.98, (True,) * 3, "only 2 of 3 seeds came so far"),
    ],
)
def test_without_all_seeds_curves_there_is_no_ratio(
    tmp_path: Path, slow: float | None, converged: tuple[bool, ...], problem: str
) -> None:
    if slow is not None:
        noisy.history(
            noisy.CURVES,
            tmp_path,
            curve=lambda *at: noisy.straight(*at) * (slow if at[:2] == (10, 1) else 1),
        )
    slower = measured(tmp_path, sigma_10=converged)
    assert (slower.ratio, slower.problem) == (None, problem)


def test_a_history_is_read_by_seed_and_averaged_in_order_of_epochs(tmp_path: Path) -> None:
    path = tmp_path / "row.csv"
    path.write_text(
        "level,seed,step,epoch,metric,value\n"
        "sigma=1,0,20,2.0,validation_accuracy,0.8\nsigma=1,1,20,2.0,validation_accuracy,0.6\n"
        "sigma=1,0,10,1.0,validation_accuracy,0.5\nsigma=1,0,10,1.0,train_loss,2.5\n"
        "sigma=2,0,10,1.0,validation_accuracy,0.1\n"
    )
    read = histories.curves(path, "sigma=1")
    assert read == {0: [(1.0, 0.5), (2.0, 0.8)], 1: [(2.0, 0.6)]}
    assert histories.averaged(read) == [(1.0, 0.5), (2.0, pytest.approx(0.7))]
    assert histories.curves(None, "sigma=1") == {}
    path.write_text("level,seed\nsigma=1,0\n")
    with pytest.raises(UserError, match="no training curves"):
        histories.curves(path, "sigma=1")
