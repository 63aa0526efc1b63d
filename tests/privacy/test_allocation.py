"""Random allocation: bounds against simulation, a second library, exact cases and the slow, obvious sums."""

from functools import lru_cache
from itertools import combinations
from math import comb

import numpy as np
import PLD_accounting as second_library
import pytest
from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution, from_gaussian_mechanism

from dprepro.accountants import allocation
from dprepro.accountants.allocation import Masses, composed_epochs, epoch_ratio, rounded_epoch, spacing_of
from dprepro.accountants.bounds import composed_epsilon, selection_epsilon
from dprepro.accountants.calibration import least_noise, proven_epsilon
from dprepro.accountants.records import NeighboringRelation, SampledGaussian
from dprepro.accounting import dpsgd_settings
from dprepro.errors import UserError
from dprepro.pipeline.ledgers.ledger import make_ledger
from dprepro.pipeline.results.schema import Ledger

DELTA = 1e-5


def spending(noise: float, batches: int, participations: int = 1) -> SampledGaussian:
    return SampledGaussian(
        sampling="allocation",
        noise_multiplier=noise,
        examples=100 * batches,
        batch=100 * participations,
        participations=participations,
    )


@lru_cache(maxsize=32)
def ledger(noise: float, batches: int, steps: int, participations: int = 1) -> Ledger:
    return make_ledger(spending(noise, batches, participations), steps, DELTA, None, others=())


def losses(noise: float, batches: int, steps: int, participations: int = 1) -> PrivacyLossDistribution:
    spacing = spacing_of(noise, batches // participations)
    return composed_epochs(noise, batches, participations, steps, spacing)


@pytest.mark.parametrize(
    ("noise", "batches", "steps"),
    [(1, 10, 10), (1, 10, 3), (1.18877474901233, 54, 20 * 54), (0.8, 54, 20 * 54), (2, 100, 5000),
     (0.5, 20, 60), (0.06, 10, 10), (20, 10, 10_000), (1, 1, 5)],
)  # fmt: skip
def test_the_upper_bound_is_within_two_percent_of_the_lower(noise: float, batches: int, steps: int) -> None:
    bounds = ledger(noise, batches, steps)
    assert bounds.epsilon_lower <= bounds.epsilon_upper <= 1.02 * bounds.epsilon_lower


@pytest.mark.parametrize(
    ("noise", "batches", "steps", "participations"),
    [(1, 10, 10, 1), (0.7, 5, 10, 1), (1, 4, 3, 1), (1, 6, 6, 2), (1, 5, 5, 2)],
)
def test_deltas_of_simulated_likelihood_ratios_are_below_the_bound(
    noise: float, batches: int, steps: int, participations: int
) -> None:
    draws, random = 400_000, np.random.default_rng(0)
    ratios = np.ones(draws)
    for begun in range(0, steps, batches):
        done = min(batches, steps - begun)
        log_terms = random.normal(-0.5 / noise**2, 1 / noise, (draws, done))
        terms = np.hstack([np.exp(log_terms), np.ones((draws, batches - done))])
        chosen = combinations(range(batches), participations)
        total = sum(np.prod(terms[:, list(columns)], axis=1) for columns in chosen)
        ratios *= total / comb(batches, participations)
    bound = losses(noise, batches, steps, participations)
    for epsilon in (0.1, 0.5, 1.0):
        for pmf, excess in (
            (bound._pmf_remove, ratios - np.exp(epsilon)),
            (bound._pmf_add, 1 - np.exp(epsilon) * ratios),
        ):
            simulated = excess.clip(0)
            error = simulated.std() / draws**0.5
            upper = float(pmf.get_delta_for_epsilon(epsilon))
            assert simulated.mean() - 4 * error <= upper
            if participations == 1:
                assert upper <= simulated.mean() + 4 * error + 0.01 * upper


@pytest.mark.parametrize("epochs", [1, 3])
def test_bounds_lie_between_those_of_a_second_library(epochs: int) -> None:
    upper, lower = second_library.gaussian_allocation_epsilon_range(
        delta=DELTA, sigma=1.0, num_steps=10, num_epochs=epochs
    )
    bounds = ledger(1, 10, 10 * epochs)
    assert lower < (bounds.epsilon_lower or 0) < (bounds.epsilon_upper or 0) < upper


def test_more_batches_than_one_of_an_epoch_are_bounded_as_by_a_second_library() -> None:
    upper, lower = second_library.gaussian_allocation_epsilon_range(
        delta=DELTA, sigma=1.5, num_steps=12, num_selected=5, num_epochs=1
    )
    assert lower < (ledger(1.5, 12, 12, 5).epsilon_upper or 0) < upper


def test_one_batch_is_a_gaussian_and_one_step_a_poisson_sample() -> None:
    for epsilon in (0.2, 1.0, 3.0):
        whole = from_gaussian_mechanism(1.3, value_discretization_interval=1e-4)
        sampled = from_gaussian_mechanism(1.3, value_discretization_interval=1e-4, sampling_prob=1 / 8)
        for bound, exact in ((losses(1.3, 1, 1), whole), (losses(1.3, 8, 1), sampled)):
            expected = exact.get_delta_for_epsilon(epsilon)
            assert expected * (1 - 1e-3) <= bound.get_delta_for_epsilon(epsilon) <= 1.01 * expected + 1e-15


@pytest.mark.parametrize("steps", [1, 5, 13, 16])
def test_laws_have_mass_one_and_mean_one(steps: int) -> None:
    spacing = spacing_of(1.1, 16)
    law = epoch_ratio(1.1, 16, steps, spacing)
    values = np.exp(law.masses.logs(spacing))
    assert law.masses.values.sum() + law.zero == pytest.approx(1, abs=1e-12)
    assert (law.masses.values * values).sum() + law.beyond == pytest.approx(1, abs=1e-12)
    assert max(law.zero, law.beyond) < 1e-20
    rounded = rounded_epoch(1.1, 16, steps, spacing)
    for masses in rounded:
        assert masses.values.sum() == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("place", [allocation._split, allocation._nearest])
@pytest.mark.parametrize("same", [True, False])
def test_sums_are_those_of_the_slow_obvious_way(place: allocation.Placement, same: bool) -> None:
    random, spacing = np.random.default_rng(0), 0.3
    first = Masses(-4, random.random(40))
    second = first if same else Masses(7, random.random(25))
    total = allocation._sum(first, second, spacing, place)
    slow = np.zeros_like(total.values)
    for one, mass in zip(first.logs(spacing), first.values, strict=True):
        for other, weight in zip(second.logs(spacing), second.values, strict=True):
            for point, share in place(np.logaddexp(one, other) / spacing, spacing):
                slow[point - total.first] += share * mass * weight
    np.testing.assert_allclose(total.values, slow, rtol=1e-9, atol=1e-12)


def test_neighbours_that_replace_an_example_are_bounded_without_amplification() -> None:
    allocated = spending(2.0, 10)
    assert allocated.neighbouring is NeighboringRelation.ADD_OR_REMOVE_ONE
    replaced = allocated.replacing()
    assert (replaced.sampling, replaced.noise_multiplier, replaced.epochs(25)) == ("shuffled", 1.0, 3)


def test_calibrated_noise_spends_the_target_and_composed_trainings_add_up() -> None:
    noise = least_noise(2.0, DELTA, 30, lambda multiplier: spending(multiplier, 10))
    assert 0.99 * 2 < proven_epsilon(spending(noise, 10), 30, DELTA) <= 2
    single, *_ = composed_epsilon([(spending(noise, 10), 30, DELTA)])
    both, _, relation, _ = composed_epsilon([(spending(noise, 10), 30, DELTA)] * 2)
    assert relation is NeighboringRelation.ADD_OR_REMOVE_ONE
    assert single <= 2 < both <= 5


def test_an_epoch_has_as_many_passes_as_participations() -> None:
    """Nine epochs of 7 batches, in 27 passes; 27 times 7/3 is above 63 in floating point."""
    options = {"examples": 700, "batch": 300, "sampling": "allocation", "participations": 3}
    assert dpsgd_settings(1.0, epochs=27.0, **options).total_steps == 9 * 7


def test_a_search_for_the_best_of_allocated_trainings_is_refused() -> None:
    with pytest.raises(UserError, match=r"'allocation'.*allowed: poisson, fixed, shuffled"):
        selection_epsilon(spending(1.0, 10), 10, DELTA, 10, "geometric")
