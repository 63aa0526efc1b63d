"""Slow-down of a level, judged by the epochs to a threshold."""

from pathlib import Path
from typing import Any

import pytest

from dprepro.errors import UserError
from dprepro.pipeline.reporting.claims.curves import Slower
from dprepro.pipeline.reporting.gather import gather
from dprepro.pipeline.reporting.judging.claim_test import Outcome
from dprepro.pipeline.reporting.judging.fairness import curves
from tests.keeping import keep, lay_papers
from tests.reporting import lookup
from tests.reporting.made_up import noisy

TEST: dict[str, Any] = {
    "kind": "slowdown",
    "of": "f1/bn-lenet5",
    "from": "sigma=1",
    "to": "sigma=10",
    "below": 9,
}
TITLE = "BN-LeNet-5, epochs at σ = 10 ÷ epochs at σ = 1"


def measured(root: Path, **converged: Any) -> Outcome:
    """Outcome of Figure 1's row alone, with the curves that lie there."""
    declared = noisy.settings()
    lay_papers(root)
    (empty,) = gather(declared, root)
    assert lookup.outcome(empty, Slower, **TEST).verdict == "not run"
    keep(noisy.record(noisy.CURVES, declared, **converged), root)
    (result,) = gather(declared, root)
    return lookup.outcome(result, Slower, **TEST)


def test_the_ratio_is_of_epochs_to_the_threshold_between_epochs(tmp_path: Path) -> None:
    noisy.history(noisy.CURVES, tmp_path)
    # straight lines: both reach the same share of their way, and seeds need 25, 26 and 27 epochs for 5
    said = "to reach a validation accuracy of 98.50 %: 5.20 ± 0.50 (n = 3), required: below 9"
    assert measured(tmp_path) == Outcome("holds", f"{TITLE}, {said}")


def test_the_threshold_is_the_lower_levels_best(tmp_path: Path) -> None:
    noisy.history(noisy.CURVES, tmp_path, curve=lambda *at: noisy.straight(*at) * (0.9 if at[0] == 10 else 1))
    assert f"to reach a validation accuracy of {90 * noisy.BEST - 0.5:.2f} %" in measured(tmp_path).text


def test_a_first_epoch_that_reaches_it_resolves_nothing(tmp_path: Path) -> None:
    noisy.history(noisy.CURVES, tmp_path, curve=lambda *at: noisy.BEST if at[0] == 1 else noisy.straight(*at))
    assert measured(tmp_path).caveat == "reached within the first epoch at σ = 1"


@pytest.mark.parametrize(
    ("slow", "converged", "problem"),
    [
        (None, (True,) * 3, "there are no training curves"),
        (1.0, (True, False, True), "only 2 of 3 seeds converged at σ = 10"),
        # the others are above the mean of all, and the threshold half a point below it is above the slow one
        (0.98, (True,) * 3, "only 2 of 3 seeds reached this accuracy"),
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
    assert measured(tmp_path, sigma_10=converged) == Outcome("undecided", f"{TITLE}: unknown, {problem}")


def test_a_history_is_read_by_seed_and_averaged_in_order_of_epochs(tmp_path: Path) -> None:
    path = tmp_path / "row.csv"
    path.write_text(
        "level,seed,step,epoch,metric,value\n"
        "sigma=1,0,20,2.0,validation_accuracy,0.8\nsigma=1,1,20,2.0,validation_accuracy,0.6\n"
        "sigma=1,0,10,1.0,validation_accuracy,0.5\nsigma=1,0,10,1.0,train_loss,2.5\n"
        "sigma=2,0,10,1.0,validation_accuracy,0.1\n"
    )
    read = curves(path, "sigma=1")
    assert read[0].to_dict() == {1.0: 0.5, 2.0: 0.8}
    assert read[1].dropna().to_dict() == {2.0: 0.6}
    assert read.mean(axis=1).to_dict() == {1.0: 0.5, 2.0: pytest.approx(0.7)}
    assert curves(None, "sigma=1").empty
    path.write_text("level,seed\nsigma=1,0\n")
    with pytest.raises(UserError, match="no training curves"):
        curves(path, "sigma=1")
