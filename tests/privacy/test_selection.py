"""The bound for selecting the best, against dp-accounting's."""

from math import inf
from typing import get_args

import pytest
from dp_accounting.dp_event import RepeatAndSelectDpEvent
from dp_accounting.rdp import RdpAccountant

from dprepro.accountants.bounds import Drawn, selection_epsilon
from dprepro.accountants.rdp import ORDERS, renyi_epsilon
from dprepro.accountants.records import SampledGaussian
from dprepro.errors import UserError

DELTA = 1e-5


def gaussian(noise: float) -> SampledGaussian:
    """All examples in every batch, so that a step is a Gaussian mechanism."""
    return SampledGaussian(sampling="poisson", noise_multiplier=noise, examples=100, batch=100)


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
