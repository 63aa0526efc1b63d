"""Lower bounds on a named pair of data sets: below every upper bound, and near it where that is exact."""

import numpy as np
import pytest
from scipy.stats import binom

from dprepro.accountants.gaussian import gaussian_epsilon
from dprepro.accountants.pld import losses
from dprepro.accountants.records import SampledGaussian
from dprepro.accountants.worst_instance import vector_counts, worst_epsilon

DELTA = 1e-5


def spending(
    sampling: str, noise: float, examples: int = 50_000, batch: int = 256, sets: int = 1
) -> SampledGaussian:
    values = {"sampling": sampling, "noise_multiplier": noise, "examples": examples, "batch": batch}
    return SampledGaussian.model_validate({**values, "sets": sets})


@pytest.mark.parametrize(("noise", "steps"), [(0.7, 500), (1.1, 2000), (3.0, 500)])
def test_of_poisson_samples_it_is_all_that_the_accountant_proves(noise: float, steps: int) -> None:
    mechanism = spending("poisson", noise)
    actual = losses(mechanism, steps, DELTA, 10.0)
    above = actual.epsilon(DELTA)
    assert 0.98 * above < worst_epsilon(mechanism, steps, DELTA, above) < above


# the settings of Figure 12a at two batch sizes, of Poisson samples, of a searched row: what an adversarial
# review computed in another way
@pytest.mark.parametrize(
    ("mechanism", "steps", "delta", "expected", "claimed"),
    [
        (spending("replacement", 0.625, 49_000, 64), 9188, 1e-5, 2.50, 2.4427),
        (spending("replacement", 0.625, 49_000, 128), 4594, 1e-5, 3.57, 3.6195),
        (spending("poisson", 1.5 / 8**0.5, 54_000, 64), 42_188, 1e-5, 7.93, 6.6028),
        (spending("replacement", 0.5, 49_000, 64), 6125, 1e-5, 5.45, 4.6444),
    ],
)
def test_what_is_shown_of_claims_by_the_central_limit_theorem(
    mechanism: SampledGaussian, steps: int, delta: float, expected: float, claimed: float
) -> None:
    actual = worst_epsilon(mechanism, steps, delta, 1.2 * expected, shared=True)
    assert actual == pytest.approx(expected, rel=0.01)
    assert (actual > claimed) == (expected > claimed)


def test_an_example_drawn_twice_turns_two_vectors_around() -> None:
    counts, chances = vector_counts(spending("replacement", 1.0, examples=500, batch=20, sets=20))
    assert chances[:3] == pytest.approx(binom(20, 1 / 500).pmf([1, 2, 3]), rel=1e-9)
    # of two mini-sets no more than two, however often it is drawn
    counts, chances = vector_counts(spending("replacement", 1.0, examples=500, batch=20, sets=2))
    assert counts.tolist() == [1, 2]
    draws = np.random.default_rng(0).integers(0, 500, (200_000, 2, 10))
    actual = (draws == 0).any(2).sum(1)
    assert chances == pytest.approx([(actual == 1).mean(), (actual == 2).mean()], abs=2e-3)


def test_of_an_order_something_is_shown_and_less_than_is_proven() -> None:
    mechanism = spending("shuffled", 0.3, examples=1000, batch=100)
    known = gaussian_epsilon(5**0.5 / 0.3, DELTA)
    assert 0.3 * known < worst_epsilon(mechanism, 50, DELTA, known) < known


def test_a_sample_that_may_leave_nobody_to_turn_around_is_counted() -> None:
    # of four expected examples, a sample is empty once in 55
    tiny = spending("poisson", 1.0, examples=1000, batch=4)
    assert worst_epsilon(tiny, 100, DELTA, 3.0, shared=True) == 0
    assert worst_epsilon(tiny, 100, DELTA, 3.0) > 0


def test_nothing_is_shown_where_nothing_is_spent() -> None:
    assert worst_epsilon(spending("poisson", 1e4), 100, DELTA, 1e-3) == 0
    assert worst_epsilon(spending("fixed", 1.0), 100, DELTA, float("inf")) == 0
