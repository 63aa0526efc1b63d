"""Trade-off curves and central limit theorems."""

import numpy as np
import pytest
from scipy.stats import norm

from dprepro.accountants.attack_risk import tradeoff
from dprepro.accountants.gaussian import clt_mu, gaussian_delta, gaussian_epsilon, h
from dprepro.accountants.pld import composed_losses
from dprepro.accountants.records import SampledGaussian


def gaussian_curve(mu: float, alphas: np.ndarray) -> np.ndarray:
    """G_mu: Phi(Phi^-1(1 - alpha) - mu)."""
    return norm.cdf(norm.isf(alphas) - mu)


def spending(sampling: str, noise: float, examples: int = 54_000, sets: int = 1) -> SampledGaussian:
    values = {"sampling": sampling, "noise_multiplier": noise, "examples": examples, "batch": 64}
    return SampledGaussian.model_validate({**values, "sets": sets})


@pytest.mark.parametrize("mu", [0.05, 0.52, 1.99, 6.0])
def test_curve_of_one_gaussian(mu: float) -> None:
    curve = tradeoff([lambda epsilons: gaussian_delta(epsilons, np.asarray(mu))], gaussian_epsilon(mu, 1e-5))
    alphas, betas = np.array(curve).T
    exact = gaussian_curve(mu, alphas)
    assert (betas <= exact).all()
    assert betas == pytest.approx(exact, abs=5e-4)


@pytest.mark.parametrize(("sampling", "noise"), [("fixed", 0.8), ("poisson", 0.25)])
def test_deltas_are_those_of_dp_accounting_one_by_one(sampling: str, noise: float) -> None:
    losses = composed_losses(spending(sampling, noise), 4000, 1e-3)
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
    mechanism = spending("fixed", sigma / 8**0.5, examples)
    assert h(mechanism.noise_multiplier) == pytest.approx(printed, abs=2e-3)
    actual = clt_mu(mechanism, round(50 * examples / 64))
    assert actual == pytest.approx(mu, abs=5e-3)


def test_mu_of_other_samplings() -> None:
    # Bu et al. 2020: q sqrt(T (e^(1/z^2) - 1)); and sqrt(epochs) / z, whatever the batch
    assert clt_mu(spending("poisson", 1.0, 6400), 100) == pytest.approx(0.01 * 10 * np.sqrt(np.e - 1))
    assert clt_mu(spending("shuffled", 2.0, 6400), 900) == pytest.approx(1.5)


@pytest.mark.parametrize("sampling", ["fixed", "poisson"])
def test_too_little_noise_has_no_limit(sampling: str) -> None:
    assert clt_mu(spending(sampling, 0.01875), 1000) is None
