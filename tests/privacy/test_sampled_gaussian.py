"""What a training spends, and how often an example is drawn."""

import numpy as np
import pytest
from scipy.stats import binom

from dprepro.accountants.bounds import describe, spent_epsilon
from dprepro.accountants.gaussian import (
    gaussian_delta,
    least_epsilon,
    squared_distances,
    step_distances,
    unamplified_epsilon,
)
from dprepro.accountants.pld import OneStep, losses
from dprepro.accountants.rdp import renyi_epsilon
from dprepro.accountants.records import SampledGaussian


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


# sqrt(50) / sigma at delta 1/45,000, bisected with 60 digits
@pytest.mark.parametrize(
    ("noise", "epsilon"),
    [
        (0.5, 156.86565122098),
        (1.0, 53.084217945322),
        (2.5, 14.932961762653),
        (0.01875, 72649.938975487),
        (0.01875 / 62**0.5, 4421012.4639663),
    ],
)
def test_the_papers_least_noise_has_a_finite_bound(noise: float, epsilon: float) -> None:
    steps, delta = 50 * 45, 1 / 45_000
    assert spent_epsilon(spending("shuffled", noise, 45_000, 1000), steps, delta) == pytest.approx(
        epsilon, rel=1e-6
    )
    # drawn anew each step, an example may be in more batches than fifty, but not in many more
    if noise < 0.1:
        assert epsilon < spent_epsilon(spending("fixed", noise, 45_000, 1000), steps, delta) < 2 * epsilon
