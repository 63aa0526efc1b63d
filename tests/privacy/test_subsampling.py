"""Losses of samples of a fixed size, against densities that are put together here by hand."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import binom, norm

from dprepro.accountants.gaussian import unamplified_epsilon
from dprepro.accountants.pld import amplified_delta, composed_losses, losses
from dprepro.accountants.rdp import renyi_epsilon
from dprepro.accountants.records import SampledGaussian
from tests.not_none import not_none

EPSILONS = np.array([0.0, 0.01, 0.1, 0.3, 1.0, 2.0, 4.0])


def spending(sampling: str, noise: float, examples: int, batch: int, sets: int = 1) -> SampledGaussian:
    values = {"sampling": sampling, "noise_multiplier": noise, "examples": examples, "batch": batch}
    return SampledGaussian.model_validate({**values, "sets": sets})


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
    not_none = np.minimum(outside, inside) > 1e-14  # nothing is lost, and logarithms are finite
    outside, inside, mixed = outside[not_none], inside[not_none], mixed[not_none]
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
        bound = not_none(renyi_epsilon(mechanism, steps, delta))
        actual = losses(mechanism, steps, delta, bound)
        epsilons[sampling] = actual.epsilon(delta)
        assert epsilons[sampling] < min(bound, unamplified_epsilon(mechanism, steps, delta))
    assert epsilons["poisson"] < epsilons["fixed"]


@pytest.mark.parametrize(("sampling", "noise"), [("shuffled", 1.0), ("fixed", 0.002)])
def test_no_losses_where_they_depend_or_run_out(sampling: str, noise: float) -> None:
    mechanism = spending(sampling, noise, 5000, 50)
    assert losses(mechanism, 1000, 1e-5, unamplified_epsilon(mechanism, 1000, 1e-5)) is None
