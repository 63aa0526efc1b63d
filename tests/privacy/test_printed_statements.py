"""Mathematical statements of the papers, against other computations; claims in `papers/` name the results."""

from itertools import pairwise
from math import expm1, inf, log, log1p, sqrt

import numpy as np
import pytest
from dp_accounting import get_sigma_gaussian
from scipy.optimize import minimize_scalar

from dprepro.accountants.calibration import noise_for, poisson_gaussian
from dprepro.accountants.gaussian import clt_mu, gaussian_delta, gaussian_epsilon
from dprepro.accountants.rdp import (
    rdp_epsilon,
    renyi_divergence,
    signal_to_noise,
    tan_divergence,
    tan_epsilon,
)
from dprepro.accountants.records import AccountSettings, SampledGaussian

DELTA = 1e-5


def account(**changes: object) -> SampledGaussian:
    values = {"sampling": "poisson", "examples": 54_000, "batch": 64, "epochs": 50}
    return AccountSettings.model_validate(values | changes).spending


# -- Davody et al. 2020 -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("epsilon", "enough"), [(0.05, True), (1, True), (8, True), (9, False), (10, False), (20, False)]
)
def test_the_printed_noise_of_one_gaussian_is_enough_for_small_epsilons_only(
    epsilon: float, enough: bool
) -> None:
    """Section 3 prints sqrt(2 ln(1.25 / delta)) / epsilon without the condition epsilon < 1."""
    noise = sqrt(2 * log(1.25 / DELTA)) / epsilon
    assert (gaussian_delta(np.array([epsilon]), np.array([1 / noise]))[0] <= DELTA) == enough
    assert (noise >= get_sigma_gaussian(epsilon, DELTA)) == enough


@pytest.mark.parametrize("noise", [0.7, 1.2, 4.0, 20.0])
def test_renyi_dp_is_tighter_than_strong_composition(noise: float) -> None:
    rate, steps, epsilon = 1024 / 55_000, 430, inf
    for share in np.linspace(0.05, 0.95, 19):  # of delta, for the steps
        one = log1p(rate * expm1(gaussian_epsilon(1 / noise, DELTA * share / (steps * rate))))
        strong = sqrt(2 * steps * log(1 / (DELTA * (1 - share)))) * one + steps * one * expm1(one)
        epsilon = min(epsilon, strong)
    assert 0 < rdp_epsilon(poisson_gaussian(rate, noise, steps), DELTA) < epsilon / 5


# -- Nguyen et al. 2023 -----------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [2.0, 3.0])
def test_layers_of_one_sample_cost_the_root_of_their_number(order: float) -> None:
    """Three parts with noise .9 each, and one sample for all of them: an integral over three dimensions."""
    noise, rate = 0.9, 0.1
    nodes, weights = np.polynomial.hermite.hermgauss(40)
    values = sqrt(2) * noise * nodes
    total = values[:, None, None] + values[:, None] + values
    mass = weights[:, None, None] * weights[:, None] * weights / np.pi**1.5
    ratio = 1 - rate + rate * np.exp((total - 1.5) / noise**2)
    divergence = log((mass * ratio**order).sum()) / (order - 1)
    spending = account(noise_multiplier=noise, parts=3, examples=640)
    assert renyi_divergence(spending, 1, order) == pytest.approx(divergence, rel=1e-6)


# -- Sander et al. 2022 -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("noise", "ratio"), [(8.0, 1.004), (3.0, 1.028), (2.0, 1.066), (0.5, 3.661)])
def test_mu_of_the_central_limit_theorem_is_a_multiple_of_eta_with_much_noise(
    noise: float, ratio: float
) -> None:
    spending = account(noise_multiplier=noise, examples=50_000, batch=4096)
    mu = clt_mu(spending, 2500)
    assert mu / (sqrt(2) * signal_to_noise(spending, 2500)) == pytest.approx(ratio, abs=1e-3)


@pytest.mark.parametrize("eta", [0.1, 1.0, 5.0])
def test_epsilon_of_tan_is_that_of_concentrated_dp(eta: float) -> None:
    """Bun and Steinke 2016, Proposition 1.3: rho-zCDP is rho + 2 sqrt(rho log(1 / delta))."""
    least = minimize_scalar(
        lambda order: tan_divergence(eta, order) + log(1 / DELTA) / (order - 1),
        bounds=(1.01, 200),
        method="bounded",
    )
    assert tan_epsilon(eta, DELTA) == pytest.approx(least.fun, rel=1e-6)
    assert tan_epsilon(eta, DELTA) == pytest.approx(eta**2 + 2 * sqrt(eta**2 * log(1 / DELTA)))


def test_effective_noise_falls_with_the_batch() -> None:
    """At one epsilon and number of steps, the noise of the mean gradient, in units of the clipping bound."""
    effective = [noise_for(8, DELTA, batch / 50_000, 2500, "rdp") / batch for batch in (256, 1024, 4096)]
    assert all(later < earlier for earlier, later in pairwise(effective))
