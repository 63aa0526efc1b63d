"""Attack risk and mu: the worked setting, closed forms, and floors by other ways."""

from math import exp, tanh

import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant
from scipy.stats import norm

from dprepro.accountants.attack_risk import (
    _envelope,
    curve_of_lines,
    curve_of_losses,
    curve_of_profile,
    gaussian_mu,
    gaussian_risk,
    laplace_risk,
    regret,
)
from dprepro.accountants.calibration import poisson_gaussian
from dprepro.accountants.gaussian import gaussian_epsilon
from dprepro.accountants.pld import PrivacyLosses, composed_losses
from dprepro.accountants.records import SampledGaussian

# a setting of which two ways agree: PLDs of two steps' sizes, and the profile of epsilon and delta
WORKED = SampledGaussian(sampling="poisson", noise_multiplier=1.18877474901233, examples=55000, batch=1024)
STEPS, EPSILON, DELTA = 1074, 2.71696, 1e-5


@pytest.fixture(scope="module")
def worked() -> PrivacyLosses:
    return composed_losses(WORKED, STEPS, 1e-4)


def test_the_worked_setting() -> None:
    risk = gaussian_risk(WORKED, STEPS, DELTA, EPSILON)
    assert risk.tpr_at_1_percent == pytest.approx(0.045033, rel=1e-3)
    assert risk.tpr_at_01_percent == pytest.approx(0.007154, rel=1e-3)
    assert risk.advantage == pytest.approx(0.238811, rel=1e-3)
    # the floor: mu of (epsilon, delta) alone, which the cut-off is chosen by
    assert risk.mu == pytest.approx(0.65886, rel=1e-3)
    assert gaussian_epsilon(risk.mu or 0.0, DELTA) >= EPSILON


@pytest.mark.parametrize(
    ("least_rate", "mu", "lost"),
    [(1e-10, 0.68667, 0.01492), (1e-8, 0.67521, None), (1e-6, 0.66287, 0.01044), (1e-5, 0.65615, 0.00917),
     (1e-4, 0.64889, None), (1e-3, 0.64079, None)],
)  # fmt: skip
def test_mu_of_the_worked_setting_at_each_cut_off(
    worked: PrivacyLosses, least_rate: float, mu: float, lost: float | None
) -> None:
    curve = curve_of_losses(worked)
    assert gaussian_mu(curve, least_rate) == pytest.approx(mu, rel=1e-3)
    if lost is not None:
        assert regret(curve, mu) == pytest.approx(lost, rel=5e-3)


def test_a_curve_is_below_every_line_of_an_independent_accountant(worked: PrivacyLosses) -> None:
    """The lines of (epsilon, delta), and never a risk below the one of any of them."""
    curve = curve_of_losses(worked)
    theirs = PLDAccountant(value_discretization_interval=1e-3).compose(
        poisson_gaussian(WORKED.rate, WORKED.noise_multiplier, STEPS)
    )
    rates = np.geomspace(1e-7, 0.9, 200)
    for epsilon in (0.0, 0.5, 1.0, 2.0, 3.0):
        delta = theirs.get_delta(epsilon)
        line = np.maximum(1 - delta - exp(epsilon) * rates, exp(-epsilon) * (1 - delta - rates))
        assert (curve.at(rates) >= line - 2e-3).all()
    assert (np.diff(curve.at(rates)) <= 0).all()


def test_gaussian_dp_comes_back() -> None:
    mu = 1.0
    whole = SampledGaussian(sampling="poisson", noise_multiplier=1 / mu, examples=10, batch=10)
    for delta in (1e-6, 1e-9):
        risk = gaussian_risk(whole, 1, delta, gaussian_epsilon(mu, delta))
        assert risk.mu == pytest.approx(mu, rel=1e-3)
        assert risk.mu >= mu
        assert 0 <= risk.regret < 1e-3
        assert risk.tpr_at_1_percent == pytest.approx(norm.cdf(mu + norm.ppf(0.01)), rel=1e-3)
        assert risk.tpr_at_01_percent == pytest.approx(norm.cdf(mu + norm.ppf(0.001)), rel=1e-3)
        assert risk.advantage == pytest.approx(2 * norm.cdf(mu / 2) - 1, rel=1e-6)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
def test_pure_epsilon_in_closed_form(epsilon: float) -> None:
    risk = laplace_risk(epsilon)
    assert risk.advantage == pytest.approx(tanh(epsilon / 2))
    assert risk.tpr_at_1_percent == pytest.approx(exp(epsilon) * 0.01)
    assert risk.mu == pytest.approx(-2 * norm.ppf(1 / (1 + exp(epsilon))), rel=1e-6)


def test_no_privacy_has_no_mu() -> None:
    risk = laplace_risk(1e5)
    assert (risk.tpr_at_1_percent, risk.advantage, risk.mu, risk.regret) == (1, 1, None, None)


@pytest.mark.parametrize("sampling", ["fixed", "replacement"])
def test_replacing_an_example_has_a_symmetric_curve(sampling: str) -> None:
    """By its own dual, against the lines of its profile."""
    spending = SampledGaussian.model_validate(
        {"sampling": sampling, "noise_multiplier": 1.0, "examples": 1000, "batch": 50}
    )
    losses = composed_losses(spending, 50, 1e-3)
    curve, lines = curve_of_losses(losses), curve_of_profile(losses.delta, 5.0)
    rates = np.array([1e-3, 1e-2, 0.1, 0.4])
    np.testing.assert_allclose(curve.at(rates), lines.at(rates), rtol=2e-4)
    assert curve.advantage == pytest.approx(float(losses.delta(np.zeros(1))[0]), rel=1e-6)
    np.testing.assert_allclose(curve.at(curve.at(rates)), rates, rtol=1e-6)


def test_rounding_of_transforms_at_very_negative_losses_stays_out() -> None:
    """e^38 times 1e-17 was called out: a true-positive rate of .9989 for .1126."""
    spending = SampledGaussian(sampling="replacement", noise_multiplier=0.5, examples=49000, batch=64, sets=1)
    risk = gaussian_risk(spending, 9188, 1e-5, 6.774)
    assert risk.tpr_at_1_percent == pytest.approx(0.1126, rel=1e-3)
    losses = composed_losses(spending, 9188, 1e-4)
    assert risk.advantage == pytest.approx(float(losses.delta(np.zeros(1))[0]), rel=1e-3)


def test_a_delta_that_rounds_to_almost_1_gives_no_mu() -> None:
    almost = np.nextafter(1, 0)
    curve = curve_of_lines(np.array([0.0, 2e6]), np.array([almost, almost]))
    assert gaussian_mu(curve, 1e-300) == np.inf


@pytest.mark.parametrize("count", [1, 2, 3, 2000])
def test_the_envelope_is_convex_and_below_all_points_with_corners_among_them(count: int) -> None:
    points = np.random.default_rng(0).random((2, count))
    points[1, ::2] = 0.1 / (0.1 + points[0, ::2])  # a convex curve, and the other points on both sides
    x, y = _envelope(*points)
    assert {*x} <= {*points[0]}
    assert {*y} <= {*points[1]}
    assert (points[1] >= np.interp(points[0], x, y) - 1e-12).all()
    slopes = np.diff(y) / np.diff(x)
    assert (slopes <= 0).all()
    assert (np.diff(slopes) > 0).all()
