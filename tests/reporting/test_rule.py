"""The rule by which ours is compared with a printed value: each verdict at its boundary."""

from math import sqrt
from pathlib import Path

import pytest
from scipy import stats

from dprepro.pipeline.params import load
from dprepro.pipeline.params.schema import REPEATED
from dprepro.pipeline.reporting import papers
from dprepro.pipeline.reporting.facts import PaperResult
from dprepro.pipeline.reporting.judging.rule import (
    FEWEST_SEEDS,
    MOST_SEEDS,
    Verdict,
    computed_verdict,
    convergence_verdict,
    half_width,
    judge,
    mean_verdict,
)
from dprepro.pipeline.reporting.printed import Printed

ROOT = Path(__file__).parents[2]


def spread_around(center: float, half: float, n: int = 3) -> list[float]:
    """Seeds with this mean and this half of a 95 % interval: two at its sides, the rest in the middle."""
    deviation = half * sqrt(n) / float(stats.t.ppf(0.975, n - 1))
    away = deviation * sqrt((n - 1) / 2)
    return [center - away, center + away, *[center] * (n - 2)]


def decided(values: list[float], printed: float = 90.0, error: float | None = 0.0) -> Verdict:
    """The verdict within a point of what is printed."""
    return mean_verdict(values, printed, error, margin=1.0)


@pytest.mark.parametrize("n", [3, 5, 16])
@pytest.mark.parametrize(
    ("center", "half", "name"),
    [
        (90.5, 0.49, "agrees"),
        (90.5, 0.51, "inconclusive"),  # a hair further out
        (89.5, 0.49, "agrees"),
        (91.5, 0.49, "above"),
        (91.5, 0.51, "inconclusive"),
        (88.5, 0.49, "below"),
        (88.5, 0.51, "inconclusive"),
        # noisy data never agree because they are noisy, not even with the printed value itself as their mean
        (90.0, 1.01, "inconclusive"),
        (90.0, 50.0, "inconclusive"),
    ],
)
def test_the_whole_interval_lies_within_the_margin_or_outside(
    center: float, half: float, name: str, n: int
) -> None:
    assert decided(spread_around(center, half, n)).name == name


@pytest.mark.parametrize("seeds", range(1, FEWEST_SEEDS))
def test_fewer_than_three_seeds_show_no_convergence(seeds: int) -> None:
    assert convergence_verdict(0, seeds, theirs=False) is None


def test_the_papers_own_error_widens_the_interval() -> None:
    values = spread_around(91.5, 0.3)
    names = [decided(values, error=error).name for error in (0.0, 0.3)]
    assert names == ["above", "inconclusive"]  # sqrt(.3 ** 2 + (1.96 x .3) ** 2) is .66


def test_a_value_without_an_error_differs_only_if_one_more_run_of_ours_would() -> None:
    for center, name in ((91.59, "inconclusive"), (91.61, "above"), (88.39, "below"), (90.0, "agrees")):
        # a prediction interval is sqrt(n + 1) times as wide as the interval of a mean
        values = spread_around(center, 0.3)
        assert decided(values, error=None).name == name
        assert decided(values).name == (name if name != "inconclusive" else "above")


def test_the_error_of_the_test_set_widens_the_interval_once() -> None:
    values = spread_around(91.5, 0.3)
    verdicts = [mean_verdict(values, 90.0, 0.0, margin=1.0, test_error=error) for error in (0.0, 0.3)]
    assert [verdict.name for verdict in verdicts] == ["above", "inconclusive"]
    whole = sqrt(0.3**2 + (1.96 * 0.1) ** 2 + (1.96 * 0.2) ** 2)
    assert half_width(values, 0.1, 0.2) == pytest.approx(whole, abs=1e-4)


def test_what_is_within_the_margin_and_surely_not_equal_says_so() -> None:
    sure, unsure = (decided(spread_around(90.4, half)) for half in (0.39, 0.41))
    assert (sure.name, sure.offset) == ("agrees", pytest.approx(0.4))
    assert (unsure.name, unsure.offset) == ("agrees", None)


def test_a_share_in_percent_equals_the_printed_number_however_binary_numbers_differ() -> None:
    assert 100 * 0.5701 != 57.01
    assert decided([100 * 0.5701] * 3, 57.01) == Verdict("agrees")


def test_seeds_that_all_lie_on_the_margin_agree() -> None:
    assert 64.01 - 63.01 > 1
    assert decided([63.01] * 3, 64.01).name == "agrees"
    assert decided([63.0] * 3, 64.01).name == "below"


def test_the_number_of_seeds_that_would_decide_does() -> None:
    values = spread_around(90.5, 0.8)
    verdict = decided(values)
    assert verdict.seeds
    deviation = stats.tstd(values)

    def half(n: int) -> float:
        return float(stats.t.ppf(0.975, n - 1)) * deviation / sqrt(n)

    assert 0.5 + half(verdict.seeds) <= 1 < 0.5 + half(verdict.seeds - 1)


@pytest.mark.parametrize(
    ("center", "error"),
    [
        (91.0, None),  # on the margin
        (90.0, 0.6),  # the paper's own interval is wider than the margin
    ],
)
def test_some_values_no_number_of_seeds_decides(center: float, error: float | None) -> None:
    verdict = decided(spread_around(center, 0.5), error=error)
    assert (verdict.name, verdict.seeds) == ("inconclusive", None)
    assert decided(spread_around(center, 0.01, MOST_SEEDS), error=error).name == "inconclusive"


@pytest.mark.parametrize(
    ("value", "name", "offset"),
    [
        (8.079, "agrees", 0.079),
        (8.081, "above", None),
        (7.921, "agrees", -0.079),
        (7.919, "below", None),
        (8.004, "agrees", None),  # rounds to what is printed
        (8.005, "agrees", None),
        # on the margin, and further off only as binary numbers are: 8.00 - 7.92 is more than 0.08
        (8.08, "agrees", 0.08),
        (7.92, "agrees", -0.08),
        (float("inf"), "above", None),
    ],
)
def test_a_computed_number_may_be_one_percent_off(value: float, name: str, offset: float | None) -> None:
    verdict = computed_verdict(value, 8.0, margin=0.08, rounding=0.005)
    assert verdict.name == name
    assert verdict.offset == (pytest.approx(offset) if offset else None)


@pytest.mark.parametrize(
    ("converged", "n", "theirs", "name"),
    [
        (0, 36, False, "agrees"),  # 9.7 % at most
        (0, 35, False, "inconclusive"),  # 10.0003 %
        (36, 36, True, "agrees"),
        (3, 3, True, "inconclusive"),
        (0, 3, False, "inconclusive"),
        (3, 3, False, "above"),
        (0, 3, True, "below"),
        (1, 3, False, "inconclusive"),  # one in a hundred would give that too
        (2, 3, True, "inconclusive"),
        (3, 5, False, "above"),  # 14.7 % at least
        (2, 5, False, "inconclusive"),  # 5.3 %
        (2, 5, True, "below"),
    ],
)
def test_where_some_seeds_converge_their_share_decides(
    converged: int, n: int, theirs: bool, name: str
) -> None:
    verdict = convergence_verdict(converged, n, theirs)
    assert verdict
    assert (verdict.name, verdict.share) == (name, f"{converged} of {n} seeds converge")
    low, high = stats.binomtest(converged, n).proportion_ci(method="exact")
    away = high < 0.9 if theirs else low > 0.1
    assert (name in ("above", "below")) == (away and converged != n * theirs)


@pytest.mark.parametrize(("printed", "name"), [(24.76, "inconclusive"), (66.3, "below")])
def test_a_seed_that_converges_is_none_against_a_paper_at_chance(printed: float, name: str) -> None:
    """Of twenty seeds one is better than the printed value, and no other is worse by more than the margin."""
    verdict = judge([25.0] * 19 + [95.0], False, [25.0] * 19, Printed(value=printed), 2.0, 0.005)
    assert verdict is not None
    assert (verdict.name, bool(verdict.share)) == (name, printed > 25)


def test_the_margins_of_the_papers_are_those_of_the_rule(papers_here: list[PaperResult]) -> None:
    """A point on MNIST, two elsewhere, a hundredth of a number; a plan has that of its table."""
    settings = load(ROOT / "params.yaml")
    judged = 0
    for result in papers_here:
        for table in result.tables:
            if table.table.margin is None:
                continue
            data = {row.declared.data for row in table.rows if hasattr(row.declared, "data")}
            judged += 1
            if table.table.unit == "number":
                assert table.table.margin == 0.01
            else:
                mnist = all(name.startswith("mnist") for name in data)
                assert table.table.margin == (1 if mnist else 2), table.name
    assert judged >= 10
    for key, plan in settings.plans.items():
        # a third part names the values, if the plan is only for some
        paper, table_key, *_ = key.partition(REPEATED)[0].split("-")
        assert papers.load(paper).tables[table_key].margin == plan.margin
