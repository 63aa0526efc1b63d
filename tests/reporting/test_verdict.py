"""The rule, by cases that were calculated by hand.

Of three runs 98.0, 98.5 and 99.0 the mean is 98.5, the standard deviation .5, and t(2; .975) = 4.3027. So
half the interval of the mean is 4.3027 x .5 / sqrt(3) = 1.2421, and that of a single run 4.3027 x .5 =
2.1513. Together they are sqrt(1.2421² + 2.1513²) = 2.4841; 1.2421 with a printed standard error of .1 is
sqrt(1.2421² + .196²) = 1.2574.

Intervals are scipy's. Privacy is by what is claimed, accounted and shown.
"""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from scipy import stats

from dprepro.accountants.laplace import Laplace, Releases
from dprepro.pipeline.ledgers.ledger import release_ledger
from dprepro.pipeline.ledgers.sentences import bound, claim
from dprepro.pipeline.methods.spending import statement
from dprepro.pipeline.params.papers import Printed
from dprepro.pipeline.reporting import verdict
from dprepro.pipeline.reporting.privacy import Privacy, floats_tell, not_covered, privacy, specific
from dprepro.pipeline.reporting.verdict import Mean, computed, contrast, mean
from dprepro.pipeline.reporting.wording import words
from dprepro.pipeline.results.schema import FLOATING_POINT, Attack, Composition, Ledger, TrainingResult
from tests.reporting.made_up import dpsgd
from tests.reporting.made_up.dpsgd import attack
from tests.reporting.made_up.dpsgd import bounds as ledger

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


def judged(*ledgers: Ledger, attacks: tuple[Attack, ...] = (), seeded: bool = False) -> Privacy:
    """Privacy of a level with these ledgers."""
    trainings = [
        TrainingResult(level="epsilon=1", seed=seed, settings={}, metrics={}, ledger=each, attacks=attacks)
        for seed, each in enumerate(ledgers)
    ]
    return privacy(trainings, seeded)


def test_an_upper_bound_proves_a_claim_unless_the_noise_is_seeded() -> None:
    assert judged(ledger(1.0, 0.92)).status == "proven"
    assert judged(ledger(None, 2.0)).status == "not proven"  # a claim above the largest float
    seeded = judged(ledger(1.0, 0.92), seeded=True)
    assert seeded.status == "not proven"
    assert seeded.reason
    assert judged(ledger(None, None, claimed_by=None), seeded=True).status == "no claim"


@pytest.mark.parametrize(
    ("spent", "attacks", "status"),
    [
        (ledger(7.0, 7.0000001), (), "proven"),  # by rounding alone
        (ledger(8.0, 8.0001), (), "proven"),  # the same, stored with five digits, rounded up
        (ledger(8.0, 8.0002), (), "not proven"),
        (ledger(0.25, None, epsilon_lower=2.0), (), "exceeded"),
        (ledger(1.0, 1.2, epsilon_lower=0.99), (), "not proven"),
        (ledger(1.0, 1.2, epsilon_lower=1.01), (), "exceeded"),
        (ledger(1.0, 0.9), (attack(0.5, 0.9, whole=True),), "proven"),
        (ledger(1.0, 1.2), (attack(1.1, 1.2, whole=True),), "exceeded"),
        # only an assumption on scores shows so much, or fewer steps than the row's
        (ledger(1.0, 1.2), (attack(1.1, 1.2, whole=True, gaussian=True),), "not proven"),
        (ledger(1.0, 0.9), (attack(3.0, 3.2),), "proven"),
        # the accounting of the attacked mechanism itself is contradicted
        (ledger(1.0, 0.9), (attack(3.3, 3.2),), "exceeded"),
        (ledger(1.0, 0.9), (attack(3.2001, 3.2),), "proven"),  # clipped sums of float32
        (ledger(1.0, 0.9), (attack(60.0, 3.2, attack=FLOATING_POINT),), "proven"),  # told apart
        (ledger(8.0, None), (attack(1.0, None),), "not proven"),
    ],
)
def test_a_lower_bound_above_a_claim_exceeds_it(
    spent: Ledger, attacks: tuple[Attack, ...], status: str
) -> None:
    found = judged(spent, attacks=attacks)
    assert found.status == status
    assert bool(found.reason) is (status != "proven")


def test_the_reason_names_the_pair_of_data_sets_of_a_computed_bound() -> None:
    named = statement("turns_around")
    found = judged(ledger(1.0, 1.2, epsilon_lower=1.01, epsilon_lower_by=named))
    assert words(named) in (found.reason or "")


@pytest.mark.parametrize(("claimed", "status"), [(8.0, "proven"), (1.0, "exceeded")])
def test_releases_of_laplace_noise_have_exact_epsilons(claimed: float, status: str) -> None:
    inputs = Laplace(quantity="inputs", claimed=claimed, distance=1.0, scales=(0.25, 0.25), span=1.0)
    found = judged(release_ledger(Releases(laplace=(inputs,)), 10))
    assert (found.status, found.ledger.epsilon_upper) == (status, pytest.approx(8.0))


def test_the_worst_training_speaks_for_all() -> None:
    broken = ledger(1.0, None, reasons=(dpsgd.BROKEN,))
    found = judged(ledger(1.0, 0.9), broken, ledger(1.0, 0.8))
    assert (found.status, found.reason) == ("not proven", dpsgd.REASON)
    assert judged(ledger(1.0, 0.8), ledger(1.0, 0.9)).ledger.epsilon_upper == 0.9
    # what is wrong with the mechanism itself is a better reason than a seed
    assert judged(broken, seeded=True).reason == dpsgd.REASON


def test_uses_that_all_rows_share_are_left_out_and_further_trainings_have_their_bound() -> None:
    spent = dpsgd.ledger(not_covered=(statement("curves"), statement("all_replicas")))
    together = Composition(epsilon=7.201, delta=1e-5, by="pld", trainings=3, searched=2, left_out=0)
    uses = not_covered(spent, (), together)
    assert [use.key for use in uses] == ["curves", "all_replicas", "floating_point"]
    (use,) = specific(uses)
    assert use.words.endswith("together is ε ≤ 7.21")
    (unbounded,) = specific(not_covered(spent, (), together.model_copy(update={"left_out": 1})))
    assert "No bound is proven" in unbounded.words


def test_an_attack_on_rounding_counts_for_its_own_noise() -> None:
    found = attack(60.0, 3.2, attack=FLOATING_POINT, noise="float32")
    assert floats_tell([found], "float32")
    assert not floats_tell([found], "grid")
    uses = not_covered(dpsgd.ledger(), [found], None)
    assert "floating_point_shown" in {use.key for use in specific(uses)}


@pytest.mark.parametrize(
    ("epsilon_upper", "words"),
    [(6.0142, "ε ≤ 6.02"), (2.0, "ε ≤ 2"), (0.044481, "ε ≤ 0.0445"), (71234.0, "ε ≤ 71,300"),
     (999.2, "ε ≤ 1,000"), (4123456.0, "ε ≤ 4.13 million"), (3.001e12, "ε ≤ 3.01e12")],
)  # fmt: skip
def test_a_bound_is_never_rounded_down(epsilon_upper: float, words: str) -> None:
    assert bound(ledger(7.0, epsilon_upper)) == words


@pytest.mark.parametrize(("claimed", "words"), [(998.4, "999"), (999.4, "1,000"), (1e-5, "1e-5"), (7, "7")])
def test_a_claim_is_rounded_up_like_the_bounds_beside_it(claimed: float, words: str) -> None:
    assert claim(ledger(claimed, None)) == words
