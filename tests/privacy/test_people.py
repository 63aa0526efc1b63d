"""Neighbours that add or remove a person with several examples, against other computations."""

from functools import partial

import numpy as np
import pytest
import torch
from dp_accounting.pld.privacy_loss_distribution import from_mixture_gaussian_mechanism
from pydantic import ValidationError
from scipy.stats import binom, norm
from torch import nn

import dprepro
from dprepro.accountants.attack_risk import gaussian_risk
from dprepro.accountants.bounds import bounds_of, describe, smallest_bound, spent_epsilon
from dprepro.accountants.calibration import least_noise
from dprepro.accountants.gaussian import mixture
from dprepro.accountants.pld import _group_losses
from dprepro.accountants.records import SampledGaussian
from dprepro.accountants.worst_instance import worst_epsilon

DELTA = 1e-5


def spending(group: int | None, noise: float = 2.0, batch: int = 50, examples: int = 1000) -> SampledGaussian:
    return SampledGaussian(
        sampling="poisson", noise_multiplier=noise, examples=examples, batch=batch, group=group
    )


def hockey_stick(epsilon: float, one: SampledGaussian, added: bool) -> float:
    """Delta of a step at ``epsilon``: the sum of the densities' excess over a fine grid of releases."""
    counts, noise = np.arange(one.group + 1), one.noise_multiplier
    releases = np.linspace(-12 * noise, one.group + 12 * noise, 1_000_001)
    without = norm.pdf(releases, 0, noise)
    within = sum(
        share * norm.pdf(releases, count, noise)
        for count, share in zip(counts, binom.pmf(counts, one.group, one.rate), strict=True)
    )
    more, less = (within, without) if added else (without, within)
    return float(np.trapezoid(np.maximum(0.0, more - np.exp(epsilon) * less), releases))


@pytest.mark.parametrize(("group", "noise"), [(2, 0.8), (3, 2.0), (8, 5.0)])
def test_one_step_is_the_integral_of_the_mixture(group: int, noise: float) -> None:
    one = spending(group, noise, batch=200)
    losses = _group_losses(one, 1e-3)
    for epsilon in (0.1, 0.5, 1.0):
        delta = max(hockey_stick(epsilon, one, added) for added in (False, True))
        assert losses.get_delta_for_epsilon(epsilon) == pytest.approx(delta, rel=1e-6)


@pytest.mark.parametrize("group", [2, 5])
def test_losses_are_those_of_dp_accounting(group: int) -> None:
    one = spending(group, 4.0)
    theirs = from_mixture_gaussian_mechanism(4.0, *mixture(one), value_discretization_interval=2e-3)
    ours = _group_losses(one, 2e-3)
    for delta in (1e-3, 1e-5, 1e-8):
        left, right = (each.self_compose(100).get_epsilon_for_delta(delta) for each in (ours, theirs))
        assert left == pytest.approx(right, rel=1e-6)


def test_a_person_with_one_example_has_the_numbers_of_an_example() -> None:
    one, example = spending(1), spending(None)
    for function in (smallest_bound, spent_epsilon):
        assert function(one, 200, DELTA) == function(example, 200, DELTA)
    epsilons = [
        {name: each.epsilon for name, each in bounds_of(it, 200, DELTA)[0].items()} for it in (one, example)
    ]
    assert epsilons[0] == epsilons[1]
    assert worst_epsilon(one, 200, DELTA, 1.5) == worst_epsilon(example, 200, DELTA, 1.5)
    assert describe(one.event(200)) == describe(example.event(200))
    assert "group" not in example.model_dump()


@pytest.mark.parametrize(("group", "noise"), [(2, 2.0), (4, 4.0), (8, 12.0)])
def test_bounds_enclose(group: int, noise: float) -> None:
    one, steps = spending(group, noise), 100
    upper = smallest_bound(one, steps, DELTA)
    lower = worst_epsilon(one, steps, DELTA, upper)
    assert 0.99 * upper < lower <= upper
    single = spending(None, noise)
    assert smallest_bound(single, steps, DELTA) < upper
    assert (
        gaussian_risk(one, steps, DELTA, upper).advantage > gaussian_risk(single, steps, DELTA, 1.0).advantage
    )


def test_all_examples_in_each_step_are_one_gaussian_of_k_distances() -> None:
    whole = spending(3, 10.0, batch=1000)
    alone = spending(None, 10.0 / 3, batch=1000)
    assert smallest_bound(whole, 10, DELTA) == pytest.approx(smallest_bound(alone, 10, DELTA), rel=1e-4)


def test_noise_for_a_person_is_the_least() -> None:
    noise = least_noise(3.0, DELTA, 50, partial(spending, 4))
    assert 0.998 * 3 <= smallest_bound(spending(4, noise), 50, DELTA) <= 3
    assert noise > 2 * least_noise(3.0, DELTA, 50, partial(spending, None))


@pytest.mark.parametrize(
    "changes", [{"sampling": "fixed"}, {"sampling": "allocation"}, {"first_release": 3.0}, {"group": 0}]
)
def test_other_mechanisms_have_no_bound_for_a_person(changes: dict[str, object]) -> None:
    with pytest.raises(ValidationError, match="group"):
        SampledGaussian.model_validate({**spending(2).model_dump(), **changes})


def test_a_person_with_k_examples_moves_a_sum_by_at_most_k_clipping_bounds() -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2))
    inputs, labels = 10 * torch.randn(9, 4), torch.arange(9) % 2
    inputs[6:], labels[6:] = inputs[6].clone(), labels[6].clone()  # a person with three equal examples

    def moved(drawn: list[int]) -> float:
        sums = [
            dprepro.clipped_sum(network, inputs[rows], labels[rows], 0.5).sums
            for rows in (list(range(6)) + drawn, list(range(6)))
        ]
        return float(sum((sums[0][name] - sums[1][name]).square().sum() for name in sums[0]) ** 0.5)

    for count in (0, 1, 2, 3):
        assert moved([6, 7, 8][:count]) == pytest.approx(0.5 * count, abs=1e-5)
