"""The rule, by cases that were calculated by hand.

Of three runs 98.0, 98.5 and 99.0 the mean is 98.5, the standard deviation .5, and t(2; .975) = 4.3027. So
half the interval of the mean is 4.3027 x .5 / sqrt(3) = 1.2421, and that of a single run 4.3027 x .5 =
2.1513. Together they are sqrt(1.2421² + 2.1513²) = 2.4841; 1.2421 with a printed standard error of .1 is
sqrt(1.2421² + .196²) = 1.2574."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from scipy import stats

from dprepro.pipeline.params.papers import Printed
from dprepro.pipeline.reporting import verdict
from dprepro.pipeline.reporting.verdict import Mean, computed, contrast, mean

RUNS = (98.0, 98.5, 99.0)


@pytest.mark.parametrize(
    ("printed", "margin", "expected"),
    [
        (Printed(value=98.4), 2.0, ("reproduced", 0.1, 2.4841)),  # .1 + 1.2421 is within 2
        (Printed(value=98.4), 1.0, ("uncertain", 0.1, 2.4841)),  # but not within 1
        (Printed(value=96.5), 1.0, ("uncertain", 2.0, 2.4841)),  # 2 isn't more than a single run's spread
        (Printed(value=96.5, error=0.1), 1.0, ("higher", 2.0, 1.2574)),  # with an error no spread is needed
        (Printed(value=95.0), 1.0, ("higher", 3.5, 2.4841)),
        (Printed(value=102.0), 1.0, ("lower", -3.5, 2.4841)),
        # certain, but within the margin
        (Printed(value=97.0, error=0.01), 3.0, ("reproduced", 1.5, 1.2422)),
    ],
)
def test_a_mean(printed: Printed, margin: float, expected: tuple[str, float, float]) -> None:
    judged = verdict.value(RUNS, printed, margin)
    assert judged.status == expected[0]
    assert (judged.difference, judged.half_width) == pytest.approx(expected[1:], abs=1e-4)


def test_two_seeds_are_too_few() -> None:
    assert verdict.value(RUNS[:2], Printed(value=98.2), 2.0) == ("not run", None, None)


@pytest.mark.parametrize(
    ("ours", "status"),
    [(7.92, "reproduced"), (7.91, "lower"), (8.09, "higher")],
)
def test_a_computed_number_has_no_spread(ours: float, status: str) -> None:
    assert verdict.value([ours], Printed(value=8.0), 0.08, computed=True).status == status


def test_a_computed_number_that_rounds_to_the_printed_one_is_reproduced() -> None:
    printed = Printed(value=8.0)
    assert verdict.value([8.004], printed, 0.001, computed=True, rounding=0.005).status == "reproduced"
    assert verdict.value([8.006], printed, 0.001, computed=True, rounding=0.005).status == "higher"


def test_no_convergence_is_a_mean_below_half_of_the_best() -> None:
    words = Printed(words="No-convergence")
    assert verdict.value([11.0, 12.0, 20.0], words, 1.0, best=98.2).status == "reproduced"
    assert verdict.value([11.0, 60.0, 90.0], words, 1.0, best=98.2).status == "higher"


def test_a_share_of_converged_trainings_is_judged_by_fishers_exact_test() -> None:
    # one-sided p: 57 of 60 against 10 of 10 is 1 in 1.6, 3 of 10 against 10 of 10 is 120/77520 = .0015
    values, printed = [99.0] * 57 + [11.0] * 3, Printed(value=99.21, error=0.05)
    assert verdict.value(values, printed, 1.0, converged=57, seeds=10).status == "uncertain"
    values = [99.0] * 3 + [11.0] * 7
    assert verdict.value(values, printed, 1.0, converged=3, seeds=10).status == "lower"


@pytest.mark.parametrize(
    ("ours", "half", "theirs", "noise", "status"),
    [
        (2.0, 0.5, 3.0, 1.0, "same direction"),
        (-0.5, 0.3, 1.3, 1.0, "opposite"),  # even if it is small
        (0.1, 0.3, 1.3, 1.0, "only in one"),  # the paper's
        (0.6, 0.8, 1.3, 1.0, "uncertain"),  # .6 + .8 is more than the margin
        (0.3, 0.1, 0.4, 1.0, "none in either"),  # certain, but within the margin
        (1.5, 0.3, 0.4, 1.0, "same direction"),  # the paper's alone isn't clear
        (1.5, 0.3, -0.4, 1.0, "only in one"),  # ours
        (3.0, 8.0, 0.0, 1.0, "uncertain"),
    ],
)
def test_an_effect(ours: float, half: float, theirs: float, noise: float, status: str) -> None:
    assert verdict.effect(Mean(ours, half, 5), theirs, noise, margin=1.0) == status


@pytest.mark.parametrize(
    ("ours", "half", "above", "below", "status"),
    [
        (2.0, 0.5, 0.0, None, "holds"),
        (2.0, 0.5, 3.0, None, "fails"),
        (2.0, 0.5, 2.2, None, "uncertain"),
        (2.0, 0.5, 1.0, 3.0, "holds"),
        (2.0, 0.5, None, 1.0, "fails"),
        (2.0, None, 0.0, None, "not run"),  # a single seed has no interval
    ],
)
def test_a_part_of_a_claim(
    ours: float, half: float | None, above: float | None, below: float | None, status: str
) -> None:
    assert verdict.part(Mean(ours, half, 5), above, below) == status


@pytest.mark.parametrize(
    ("parts", "status"),
    [
        (["holds", "holds", "not run"], "supported"),
        (["holds", "not run"], "not tested"),
        (["fails", "not run"], "contradicted"),
        (["fails", "uncertain"], "contradicted"),
        (["holds", "fails"], "mixed"),
        (["holds", "uncertain"], "mixed"),
        (["uncertain"], "mixed"),
        (["not proven", "not run"], "not proven"),
        (["not proven", "fails"], "contradicted"),
        (["not proven", "holds"], "mixed"),
        (["not run"], "not tested"),
        ([], "not tested"),
    ],
)
def test_a_claim(parts: list[verdict.Part], status: str) -> None:
    assert verdict.claim(parts) == status


def seeds(values: Sequence[float] | dict[int, float]) -> Any:
    """What a row reached, by seed."""
    by_seed = values if isinstance(values, dict) else dict(enumerate(values))
    return SimpleNamespace(by_seed=by_seed, mean=mean([*by_seed.values()]))


def difference(left: Sequence[float], right: Sequence[float]) -> Mean:
    """Of two rows' seeds, which are independent."""
    return contrast([(1, "left", seeds(left)), (-1, "right", seeds(right))])


EXACT: Any = SimpleNamespace(by_seed={0: 3.0}, mean=computed(3.0))
LEFT, RIGHT = (97.0, 97.4, 97.1, 97.3), (96.2, 96.9, 96.1)


def paired() -> Mean:
    """Of one row's cells, whose seeds go together."""
    left, right = {0: 97.0, 1: 97.4, 2: 97.1}, {2: 96.9, 1: 97.3, 0: 96.5, 7: 50.0}
    return contrast([(1, "row", seeds(left)), (-1, "row", seeds(right))])


@pytest.mark.parametrize(
    ("ours", "scipys"),
    [
        (mean(LEFT), stats.ttest_1samp(LEFT, 0)),
        (difference(LEFT, RIGHT), stats.ttest_ind(LEFT, RIGHT, equal_var=False)),
        (paired(), stats.ttest_rel([97.0, 97.4, 97.1], [96.5, 97.3, 96.9])),
    ],
)
def test_intervals_are_scipys(ours: Mean, scipys: Any) -> None:
    assert ours.half_width is not None
    interval = scipys.confidence_interval()
    assert (ours.value - ours.half_width, ours.value + ours.half_width) == pytest.approx(
        (interval.low, interval.high)
    )


def test_rows_are_independent_and_weights_scale_their_spread() -> None:
    weighted = contrast([(1, "one", seeds(LEFT)), (-0.5, "other", seeds(RIGHT))])
    expected = difference(LEFT, [value / 2 for value in RIGHT])
    assert weighted.value == pytest.approx(expected.value)
    assert weighted.half_width == pytest.approx(expected.half_width)


def test_what_is_computed_has_no_spread() -> None:
    assert contrast([(2, "account", EXACT)]) == computed(6.0)
    mixed = contrast([(1, "row", seeds(LEFT)), (-1, "account", EXACT)])
    assert (mixed.half_width, mixed.n) == (pytest.approx(mean(LEFT).half_width), 4)


def test_one_seed_has_no_interval_and_decides_nothing() -> None:
    for single in (mean([97.0]), difference([97.0], RIGHT)):
        assert single.half_width is None


def test_cells_of_a_row_without_a_common_seed_decide_nothing() -> None:
    left, right = seeds({0: 97.0, 1: 97.4}), seeds({2: 96.9, 3: 97.3})
    gap = contrast([(1, "row", left), (-1, "row", right)])
    assert (gap.value, gap.half_width, gap.n) == (pytest.approx(0.1), None, 0)


def test_seeds_that_agree_exactly_have_an_interval_of_no_width() -> None:
    assert difference([1.0, 1.0], [0.5, 0.5]) == Mean(0.5, 0.0, 2)
