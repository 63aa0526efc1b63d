"""TAN and Renyi DP at the settings of Sander et al. 2022, against their prints and a second library."""

import numpy as np
import pytest
from opacus.accountants.analysis import rdp as opacus
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.stats import norm

from pipeline.ledgers.ledger import bounds_of
from pipeline.privacy.accounting import classic_epsilon, opacus_rdp, renyi_divergence, renyi_epsilon
from pipeline.privacy.renyi import sampled_gaussian
from pipeline.privacy.sampled_gaussian import SampledGaussian
from pipeline.privacy.total_noise import signal_to_noise, tan_divergence, tan_epsilon, tan_eta

ORDERS = np.array([1.1, 1.5, 1.9, 2.5, 4.7, 9.5])


def spending(noise: float, batch: int = 4096, examples: int = 50_000) -> SampledGaussian:
    return SampledGaussian(sampling="poisson", noise_multiplier=noise, examples=examples, batch=batch)


CIFAR = (spending(3.0), 2500, 1e-5)
IMAGENET = (spending(2.5, 32768, 1_281_167), 18_000, 8e-7)


@pytest.mark.parametrize(
    ("training", "improved", "classic", "pld", "tan"),
    [(CIFAR, 7.10, 7.82, 6.58, 7.484), (IMAGENET, 7.98, 8.66, 7.49, 8.215)],
)
def test_reference_settings(
    training: tuple[SampledGaussian, int, float], improved: float, classic: float, pld: float, tan: float
) -> None:
    mechanism, steps, delta = training
    actual = renyi_epsilon(mechanism, steps, delta)
    assert actual == pytest.approx(improved, abs=0.02)
    assert actual == pytest.approx(
        opacus_rdp(mechanism.rate, mechanism.noise_multiplier, steps, delta), rel=1e-6
    )
    assert classic_epsilon(mechanism, steps, delta) == pytest.approx(classic, abs=0.02)
    assert bounds_of(mechanism, steps, delta)[0]["pld"].epsilon == pytest.approx(pld, abs=0.02)
    assert tan_epsilon(signal_to_noise(mechanism, steps), delta) == pytest.approx(tan, abs=1e-3)


@pytest.mark.parametrize("noise", [0.1875, 0.7, 3.0, 30.0])
def test_orders_that_are_not_looked_at_would_change_nothing(noise: float) -> None:
    mechanism = spending(noise, 256)
    theirs = opacus_rdp(mechanism.rate, noise, 2500, 1e-5)
    assert renyi_epsilon(mechanism, 2500, 1e-5) == pytest.approx(theirs, rel=1e-6)


def test_tan_is_near_where_noise_is_plenty_and_far_behind_the_wall() -> None:
    # at one eta, so that TAN says the same of all of them
    ratios = [
        renyi_divergence(spending(noise, round(4096 * noise / 3)), 2500, 8)
        / tan_divergence(signal_to_noise(spending(noise, round(4096 * noise / 3)), 2500), 8)
        for noise in (0.5, 1.0, 3.0, 8.0)
    ]
    assert ratios == sorted(ratios, reverse=True)
    assert ratios[0] > 1000
    assert 1 < ratios[-1] < 1.1


@pytest.mark.parametrize("epsilon", [1e-6, 0.1, 8.0, 300.0])
def test_eta_of_an_epsilon(epsilon: float) -> None:
    assert tan_epsilon(tan_eta(epsilon, 1e-5), 1e-5) == pytest.approx(epsilon, rel=1e-9)


@pytest.mark.parametrize(
    ("rate", "noise"), [(0.08, 3.0), (0.8, 3.0), (0.005, 0.1875), (0.5, 20.0), (1e-3, 0.06)]
)
def test_fractional_orders_agree_with_opacus(rate: float, noise: float) -> None:
    theirs = opacus.compute_rdp(q=rate, noise_multiplier=noise, steps=1, orders=ORDERS.tolist())
    assert sampled_gaussian(rate, noise, ORDERS) == pytest.approx(theirs, rel=1e-7)


def test_a_fractional_order_is_the_numeric_integral() -> None:
    rate, noise, order = 0.1, 1.2, 1.5

    def integrand(x: float) -> float:
        ratio = 1 - rate + rate * np.exp((2 * x - 1) / (2 * noise**2))
        return float(norm.pdf(x, 0, noise) * ratio**order)

    whole, _ = quad(integrand, -30, 30, points=[0, 1], epsabs=0, epsrel=1e-12, limit=500)
    assert sampled_gaussian(rate, noise, np.array([order]))[0] == pytest.approx(2 * np.log(whole), rel=1e-8)


def test_small_rates_keep_their_digits() -> None:
    """Where q is tiny a step's divergence is order / 2 q^2 (e^(1 / z^2) - 1)."""
    rate = 1e-6
    expected = ORDERS / 2 * rate**2 * np.expm1(1.0)
    assert sampled_gaussian(rate, 1.0, ORDERS[:4]) == pytest.approx(expected[:4], rel=1e-4)


# Table 5 prints four epsilons; its column N is lost
PRINTED = (150.3, 13.7, 7.3, 7.1)
FOUND = (5001, 28_400, 48_800, 49_990)


def epsilon_of(examples: int, delta: float) -> float:
    actual = renyi_epsilon(spending(3.0, examples=examples), 2500, delta)
    assert actual is not None
    return actual


def test_table_5_is_printed_with_half_a_share_of_delta() -> None:
    """Solved for N with delta = .5 / N, as CIFAR-10's 1e-5 is .5 / 50,000, each print leaves an interval."""
    for printed, examples in zip(PRINTED, FOUND, strict=True):
        low, high = (
            brentq(lambda n, aim=printed + step: epsilon_of(round(n), 0.5 / n) - aim, 4500, 60_000, xtol=0.5)
            for step in (0.05, -0.05)
        )
        assert low <= examples <= high
    # a tenth of CIFAR-10 is as good as 5,001
    assert epsilon_of(5000, 1e-4) == pytest.approx(150.3, abs=0.05)


@pytest.mark.parametrize(("delta", "epsilon"), [(1e-5, 158.0), (1 / 5000, 148.0)])
def test_table_5_with_another_delta_is_no_tenth_of_cifar(delta: float, epsilon: float) -> None:
    """One delta for every N, or 1 / N, are not what 150.3 was printed with."""
    assert epsilon_of(5000, delta) == pytest.approx(epsilon, abs=0.05)
