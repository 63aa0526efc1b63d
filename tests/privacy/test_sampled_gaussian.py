"""What a sampled Gaussian mechanism spends: losses, bounds from above and below, curves and limits."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import binom, norm

from dprepro.accountants.attack_risk import tradeoff
from dprepro.accountants.bounds import describe, spent_epsilon
from dprepro.accountants.gaussian import (
    clt_mu,
    gaussian_delta,
    gaussian_epsilon,
    h,
    least_epsilon,
    squared_distances,
    step_distances,
    unamplified_epsilon,
)
from dprepro.accountants.pld import OneStep, amplified_delta, composed_losses, losses
from dprepro.accountants.rdp import renyi_epsilon
from dprepro.accountants.records import SampledGaussian
from dprepro.accountants.worst_instance import vector_counts, worst_epsilon


def spending(
    sampling: str = "fixed", noise: float = 1.0, examples: int = 500, batch: int = 20, sets: int = 1
) -> SampledGaussian:
    values = {"sampling": sampling, "noise_multiplier": noise, "examples": examples, "batch": batch}
    return SampledGaussian.model_validate({**values, "sets": sets})


@pytest.mark.parametrize(
    ("sampling", "neighbouring", "event"),
    [
        ("poisson", "add or remove one", "50 x PoissonSampled(0.04, Gaussian(1))"),
        ("fixed", "replace one", "50 x SampledWithoutReplacement(20 of 500, Gaussian(1))"),
        ("replacement", "replace one", "50 x SampledWithReplacement(20 of 500, Gaussian(1))"),
        ("shuffled", "replace one", "2 x Gaussian(1)"),
    ],
)
def test_event_and_neighbours_of_each_sampling(sampling: str, neighbouring: str, event: str) -> None:
    mechanism = spending(sampling)
    assert mechanism.neighbouring == neighbouring
    assert describe(mechanism.event(50)) == event


def test_an_epoch_begun_counts_whole_and_leaves_out_a_last_batch_that_is_too_small() -> None:
    mechanism = spending("shuffled", examples=59, batch=20)
    assert [mechanism.epochs(steps) for steps in (1, 2, 3, 4, 5)] == [1, 1, 2, 2, 3]


def test_an_example_drawn_often_moves_at_most_every_mini_set() -> None:
    distances, chances = step_distances(spending("replacement", sets=3))
    draws = binom(20, 1 / 500)
    assert distances.tolist() == [1, 2, 3]
    assert chances == pytest.approx([draws.pmf(1), draws.pmf(2), draws.sf(2)], rel=1e-9)


@pytest.mark.parametrize(("noise", "delta"), [(1.0, 1e-35), (1.0, 1e-60), (0.3, 1e-60)])
def test_a_bound_holds_at_deltas_below_the_probability_of_many_draws(noise: float, delta: float) -> None:
    """Theorem 10 of Balle, Barthe and Gaboardi 2018, over all numbers of draws."""
    mechanism = spending("replacement", noise=noise, examples=60_000, batch=100, sets=100)
    counts = np.arange(1, 101)
    chances = binom(100, 1 / 60_000).pmf(counts)

    def profile(epsilons: np.ndarray) -> np.ndarray:
        inner = np.log1p(np.expm1(epsilons) / chances.sum())
        return gaussian_delta(inner[:, None], counts / noise) @ chances

    grid = losses(mechanism, 1, delta, 1e4)
    assert isinstance(grid, OneStep)
    assert grid.epsilon(delta) >= least_epsilon(profile, delta) * (1 - 1e-9)
    assert unamplified_epsilon(mechanism, 1, delta) >= grid.epsilon(delta) * (1 - 1e-9)


def test_squared_distances_add_up_as_in_a_simulation() -> None:
    mechanism, steps, trials = spending("replacement", examples=50, sets=20), 30, 20_000
    values, chances = squared_distances(mechanism, steps)
    assert chances.sum() == pytest.approx(1, abs=1e-12)
    draws = np.random.default_rng(0).binomial(20, 1 / 50, (trials, steps))
    actual = (np.minimum(draws, 20) ** 2).sum(1)
    for level in (0.1, 0.5, 0.9, 0.99):
        bound = values[np.searchsorted(chances.cumsum(), level)]
        assert (actual <= bound).mean() == pytest.approx(chances[values <= bound].sum(), abs=0.01)


@pytest.mark.parametrize("sampling", ["poisson", "fixed", "replacement", "shuffled"])
@pytest.mark.parametrize("noise", [1.0, 0.02])
def test_spent_is_the_least_of_two_bounds(sampling: str, noise: float) -> None:
    mechanism = spending(sampling, noise=noise)
    bounds = (renyi_epsilon(mechanism, 100, 1e-5), unamplified_epsilon(mechanism, 100, 1e-5))
    assert spent_epsilon(mechanism, 100, 1e-5) == min(bound for bound in bounds if bound is not None)
    if sampling in ("poisson", "fixed"):  # amplified where noise is plenty
        assert spent_epsilon(mechanism, 100, 1e-5) == bounds[noise < 1]


EPSILONS = np.array([0.0, 0.01, 0.1, 0.3, 1.0, 2.0, 4.0])


def masses(weights: dict[float, float], noise: float) -> np.ndarray:
    """A mixture of Gaussians of standard deviation ``noise``: probabilities of small bins. Keys are means."""
    edges = np.linspace(-12 * noise - 3, 12 * noise + 3, 20_001)
    return sum(weight * np.diff(norm.cdf(edges, mean, noise)) for mean, weight in weights.items())


def hockey_stick(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    return np.array([np.maximum(first - np.exp(epsilon) * second, 0).sum() for epsilon in EPSILONS])


@pytest.mark.parametrize(("noise", "examples", "batch"), [(0.6, 20, 3), (1.0, 100, 5), (2.0, 10, 10)])
def test_one_step_without_replacement_is_the_numeric_integral(
    noise: float, examples: int, batch: int
) -> None:
    share = batch / examples
    outside, mixed = masses({0: 1.0}, noise), masses({0: 1 - share, 1: share}, noise)
    actual = amplified_delta(spending("fixed", noise, examples, batch), EPSILONS)
    assert_allclose(actual, hockey_stick(mixed, outside), rtol=1e-4, atol=1e-10)
    # the other direction is the smaller one, so it is covered
    assert (actual >= hockey_stick(outside, mixed) - 1e-12).all()


@pytest.mark.parametrize("sets", [1, 2, 4])
@pytest.mark.parametrize("noise", [0.7, 1.5])
def test_one_step_with_replacement_bounds_a_worst_case(sets: int, noise: float) -> None:
    """Data where each mini-set that holds the example moves by the whole distance, and all others stay."""
    examples, batch = 5, 4
    draws = binom(batch, 1 / examples)
    # the sets that j draws hit, spread as far as they go; without the example everything is at 0
    weights: dict[float, float] = {}
    for times in range(batch + 1):
        place = float(min(times, sets))
        weights[place] = weights.get(place, 0.0) + draws.pmf(times)
    with_it, without = masses(weights, noise), masses({0.0: 1.0}, noise)
    actual = amplified_delta(spending("replacement", noise, examples, batch, sets), EPSILONS)
    worst = np.maximum(hockey_stick(with_it, without), hockey_stick(without, with_it))
    assert (actual >= worst * (1 - 1e-4) - 1e-10).all()
    if sets == 1:  # nothing is lost
        assert_allclose(actual, worst, rtol=1e-4, atol=1e-10)


def test_two_steps_are_two_losses_added() -> None:
    """The pair of Theorem 11 of Zhu, Dong and Wang 2022, its loss put together from densities by hand."""
    noise, share = 0.8, 0.2
    outside, inside = masses({0: 1.0}, noise), masses({1: 1.0}, noise)
    mixed = (1 - share) * outside + share * inside
    likely = np.minimum(outside, inside) > 1e-14  # nothing is lost, and logarithms are finite
    outside, inside, mixed = outside[likely], inside[likely], mixed[likely]
    up, down = np.log(mixed / outside), np.log(inside / ((1 - share) * inside + share * outside))
    # losses above 0 come from (mixed, outside), those below from (inside, mixed), and the rest is at 0
    losses_and_masses = [np.append(up[up > 0], down[down < 0]), np.append(mixed[up > 0], inside[down < 0])]
    bins = np.round(np.append(losses_and_masses[0], 0.0) / 1e-3).astype(int)
    chances = np.append(losses_and_masses[1], 1 - losses_and_masses[1].sum())
    single = np.bincount(bins - bins.min(), weights=chances)
    two = np.convolve(single, single)
    added = 1e-3 * (np.arange(len(two)) + 2 * bins.min())
    expected = [(two * np.maximum(-np.expm1(epsilon - added), 0)).sum() for epsilon in EPSILONS]
    actual = composed_losses(spending("fixed", noise, 10, 2), 2, 1e-3)
    assert_allclose(actual.delta(EPSILONS), expected, rtol=0.01)


@pytest.mark.parametrize(("noise", "steps"), [(0.8, 500), (1.5, 5000), (5.0, 5000)])
def test_losses_are_between_those_of_poisson_samples_and_renyi_dp(noise: float, steps: int) -> None:
    delta = 1e-5
    epsilons = {}
    for sampling in ("poisson", "fixed"):
        mechanism = spending(sampling, noise, 20_000, 100)
        bound = renyi_epsilon(mechanism, steps, delta) or 0.0
        actual = losses(mechanism, steps, delta, bound)
        epsilons[sampling] = actual.epsilon(delta)
        assert epsilons[sampling] < min(bound, unamplified_epsilon(mechanism, steps, delta))
    assert epsilons["poisson"] < epsilons["fixed"]


@pytest.mark.parametrize(("sampling", "noise"), [("shuffled", 1.0), ("fixed", 0.002)])
def test_no_losses_where_they_depend_or_run_out(sampling: str, noise: float) -> None:
    mechanism = spending(sampling, noise, 5000, 50)
    assert losses(mechanism, 1000, 1e-5, unamplified_epsilon(mechanism, 1000, 1e-5)) is None


DELTA = 1e-5


@pytest.mark.parametrize(("noise", "steps"), [(0.7, 500), (1.1, 2000), (3.0, 500)])
def test_of_poisson_samples_it_is_all_that_the_accountant_proves(noise: float, steps: int) -> None:
    mechanism = spending("poisson", noise, 50_000, 256)
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
    assert worst_epsilon(spending("poisson", 1e4, 50_000, 256), 100, DELTA, 1e-3) == 0
    assert worst_epsilon(spending("fixed", 1.0, 50_000, 256), 100, DELTA, float("inf")) == 0


def gaussian_curve(mu: float, alphas: np.ndarray) -> np.ndarray:
    """G_mu: Phi(Phi^-1(1 - alpha) - mu)."""
    return norm.cdf(norm.isf(alphas) - mu)


@pytest.mark.parametrize("mu", [0.05, 0.52, 1.99, 6.0])
def test_curve_of_one_gaussian(mu: float) -> None:
    curve = tradeoff([lambda epsilons: gaussian_delta(epsilons, np.asarray(mu))], gaussian_epsilon(mu, 1e-5))
    alphas, betas = np.array(curve).T
    exact = gaussian_curve(mu, alphas)
    assert (betas <= exact).all()
    assert betas == pytest.approx(exact, abs=5e-4)


@pytest.mark.parametrize(("sampling", "noise"), [("fixed", 0.8), ("poisson", 0.25)])
def test_deltas_are_those_of_dp_accounting_one_by_one(sampling: str, noise: float) -> None:
    losses = composed_losses(spending(sampling, noise, 54_000, 64), 4000, 1e-3)
    epsilons = np.concatenate([[0.0], np.geomspace(1e-3, 2000, 60)])
    alone = [losses.grid.get_delta_for_epsilon(epsilon) + losses.rounding for epsilon in epsilons.tolist()]
    assert losses.delta(epsilons) == pytest.approx(alone, rel=1e-11)


def test_hiding_nothing_leaves_no_error_but_at_alpha_zero() -> None:
    mu = 400.0
    curve = tradeoff([lambda epsilons: gaussian_delta(epsilons, np.asarray(mu))], gaussian_epsilon(mu, 1e-5))
    assert curve[0] == (0.0, pytest.approx(1, abs=2e-5))
    assert {beta for _, beta in curve[1:]} == {0.0}


# h and mu as Appendix B.1 of Nguyen et al. 2023 prints them; its 1.513 should be 1.514
@pytest.mark.parametrize(
    ("sigma", "printed", "examples", "mu"),
    [(2.5, 1.513, 54_000, 0.52), (1.5, 5.783, 54_000, 1.99), (1.5, 5.783, 15 * 54_000, 0.51)],
)
def test_numbers_of_the_paper(sigma: float, printed: float, examples: int, mu: float) -> None:
    mechanism = spending("fixed", sigma / 8**0.5, examples, 64)
    assert h(mechanism.noise_multiplier) == pytest.approx(printed, abs=2e-3)
    actual = clt_mu(mechanism, round(50 * examples / 64))
    assert actual == pytest.approx(mu, abs=5e-3)


def test_mu_of_other_samplings() -> None:
    # Bu et al. 2020: q sqrt(T (e^(1/z^2) - 1)); and sqrt(epochs) / z, whatever the batch
    assert clt_mu(spending("poisson", 1.0, 6400, 64), 100) == pytest.approx(0.01 * 10 * np.sqrt(np.e - 1))
    assert clt_mu(spending("shuffled", 2.0, 6400, 64), 900) == pytest.approx(1.5)


@pytest.mark.parametrize("sampling", ["fixed", "poisson"])
def test_too_little_noise_has_no_limit(sampling: str) -> None:
    assert clt_mu(spending(sampling, 0.01875, 54_000, 64), 1000) is None
