"""The bound for selecting the best, against selections whose distribution is known exactly."""

from math import exp, inf, log
from typing import get_args

import numpy as np
import pytest
from dp_accounting.dp_event import RepeatAndSelectDpEvent
from dp_accounting.rdp import RdpAccountant
from scipy.stats import norm

from dprepro.accountants.bounds import Drawn, selection_epsilon
from dprepro.accountants.gaussian import gaussian_epsilon
from dprepro.accountants.rdp import ORDERS, renyi_epsilon
from dprepro.accountants.records import SampledGaussian
from dprepro.errors import UserError

DELTA = 1e-5


def gaussian(noise: float) -> SampledGaussian:
    """All examples in every batch, so that a step is a Gaussian mechanism."""
    return SampledGaussian(sampling="poisson", noise_multiplier=noise, examples=100, batch=100)


def derivative(drawn: Drawn, mean: float, x: np.ndarray) -> np.ndarray:
    """G'(x) of the generating function of the number of trainings, whose largest then has density f G'(F)."""
    if drawn == "poisson":
        return mean * np.exp(mean * (x - 1))
    if drawn == "geometric":
        return (1 / mean) / (1 - (1 - 1 / mean) * x) ** 2
    # 1 - gamma over gamma ln(1 / gamma) is the mean
    low, high = 1e-12, 1 - 1e-12
    for _ in range(200):
        gamma = (low * high) ** 0.5
        low, high = (gamma, high) if (1 - gamma) / (gamma * log(1 / gamma)) > mean else (low, gamma)
    return (1 - gamma) / (1 - (1 - gamma) * x) / log(1 / gamma)


def exact_delta(drawn: Drawn, mean: float, mu: float, epsilon: float) -> float:
    """Delta of releasing the largest of a drawn number of N(0, 1) against N(mu, 1), the worse way round."""
    x = np.linspace(-12, 12 + mu, 400_001)
    densities = [norm.pdf(x, at) * derivative(drawn, mean, norm.cdf(x, at)) for at in (0.0, mu)]
    return max(
        float(np.trapezoid(np.maximum(first - exp(epsilon) * other, 0), x))
        for first, other in (densities, densities[::-1])
    )


@pytest.mark.parametrize("drawn", get_args(Drawn))
@pytest.mark.parametrize(("noise", "mean"), [(2.0, 3.0), (1.0, 10.0), (4.0, 100.0)])
def test_no_selection_of_the_largest_spends_more(drawn: Drawn, noise: float, mean: float) -> None:
    bound = selection_epsilon(gaussian(noise), 1, DELTA, mean, drawn)
    # no training is no release: the law of what is released where there was one is told apart no better
    assert exact_delta(drawn, mean, 1 / noise, bound) <= DELTA
    single = gaussian_epsilon(1 / noise, DELTA)
    assert exact_delta(drawn, mean, 1 / noise, single) > DELTA  # selecting does cost
    assert bound < mean * single


@pytest.mark.parametrize(("noise", "mean"), [(2.0, 3.0), (8.0, 50.0)])
def test_of_a_geometric_number_it_is_corollary_4_of_papernot_and_steinke(noise: float, mean: float) -> None:
    rho, orders = 1 / (2 * noise**2), np.linspace(1.01, 500, 200_000)
    orders = orders[orders > 1 + (log(mean) / rho) ** 0.5]
    divergences = rho * (orders - 1) + log(mean) / (orders - 1) + 4 * (rho * log(mean)) ** 0.5 - rho
    epsilons = divergences + np.log1p(-1 / orders) - np.log(DELTA * orders) / (orders - 1)
    bound = selection_epsilon(gaussian(noise), 1, DELTA, mean, "geometric")
    assert epsilons.min() <= bound < 1.02 * epsilons.min()  # at fewer orders


@pytest.mark.parametrize("drawn", get_args(Drawn))
@pytest.mark.parametrize("mean", [1.0, 1.5, 10.0, 1e4])
def test_dp_accounting_has_the_same_bound(drawn: Drawn, mean: float) -> None:
    mechanism = SampledGaussian(sampling="poisson", noise_multiplier=1.0, examples=1000, batch=10)
    library = RdpAccountant(ORDERS)
    shape = {"logarithmic": 0.0, "geometric": 1.0, "poisson": inf}[drawn]
    library.compose(RepeatAndSelectDpEvent(mechanism.event(500), mean, shape))
    ours = selection_epsilon(mechanism, 500, DELTA, mean, drawn)
    assert ours == pytest.approx(library.get_epsilon(DELTA), rel=1e-3)


@pytest.mark.parametrize("drawn", get_args(Drawn))
@pytest.mark.parametrize(("noise", "steps"), [(1e7, 10**12), (1e9, 1)])
def test_much_noise_is_not_more_than_it_is(drawn: Drawn, noise: float, steps: int) -> None:
    """dp-accounting's divergence of such a step has no digits: it may be 0, or have no logarithm."""
    mechanism = SampledGaussian(sampling="poisson", noise_multiplier=noise, examples=1000, batch=10)
    single = renyi_epsilon(mechanism, steps, DELTA)
    assert single is not None
    assert single <= selection_epsilon(mechanism, steps, DELTA, 1.0, drawn)
    assert single < selection_epsilon(mechanism, steps, DELTA, 10.0, drawn) < 4 * single + 0.003


def test_no_bound_is_a_line() -> None:
    fixed = SampledGaussian(sampling="fixed", noise_multiplier=1e9, examples=1000, batch=10)
    with pytest.raises(UserError, match="no bound"):
        selection_epsilon(fixed, 1, DELTA, 10.0, "geometric")


@pytest.mark.parametrize("mean", [0.5, inf, float("nan")])
def test_less_than_one_training_is_a_line(mean: float) -> None:
    with pytest.raises(UserError, match="allowed: 1 or more"):
        selection_epsilon(gaussian(1.0), 1, DELTA, mean, "geometric")
