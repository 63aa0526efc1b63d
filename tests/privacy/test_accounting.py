"""Accountants against second libraries, against each other, and against the prints of Sander et al. 2022."""

from math import inf
from typing import get_args

import numpy as np
import pytest
from dp_accounting import ComposedDpEvent, NeighboringRelation
from dp_accounting.dp_event import RepeatAndSelectDpEvent
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant
from opacus.accountants.analysis import rdp as opacus
from scipy.optimize import brentq

from dprepro.accountants import rdp
from dprepro.accountants.bounds import Drawn, bounds_of, composed_epsilon, selection_epsilon, spent_epsilon
from dprepro.accountants.calibration import (
    NEAR,
    Accountant,
    least_noise,
    noise_for,
    poisson_gaussian,
    proven_epsilon,
)
from dprepro.accountants.gaussian import gaussian_epsilon
from dprepro.accountants.opacus import opacus_prv, opacus_rdp
from dprepro.accountants.pld import pld_epsilon
from dprepro.accountants.rdp import (
    rdp_epsilon,
    renyi_divergence,
    renyi_epsilon,
    sampled_gaussian,
    sampled_gaussian_whole,
    tan_epsilon,
    tan_eta,
)
from dprepro.accountants.records import SampledGaussian
from dprepro.accountants.worst_instance import worst_epsilon
from dprepro.errors import UserError
from dprepro.pipeline.ledgers.ledger import make_ledger

ORDERS = np.array([1.1, 1.5, 1.9, 2.5, 4.7, 9.5])
FIRST, DELTA = 8 / 2**0.5, 1e-5  # FIRST: noise of a release of all examples before the first step
ADD_OR_REMOVE = NeighboringRelation.ADD_OR_REMOVE_ONE


def spending(
    noise: float = 3.0,
    batch: int = 4096,
    examples: int = 50_000,
    sampling: str = "poisson",
    first: float | None = None,
) -> SampledGaussian:
    values = {"sampling": sampling, "noise_multiplier": noise, "examples": examples, "batch": batch}
    return SampledGaussian.model_validate({**values, "first_release": first})


@pytest.mark.parametrize(
    ("mechanism", "steps"),
    [
        *(
            (spending(*numbers, 55_000), steps)
            for numbers, steps in (((0.963, 1024), 430), ((1.801, 1024), 430))
        ),
        *((spending(noise, 256), 2500) for noise in (0.1875, 0.7, 3.0, 30.0)),
        (spending(), 2500),
        (spending(first=FIRST), 500),
    ],
)
def test_bounds_of_poisson_samples_are_those_of_other_libraries(
    mechanism: SampledGaussian, steps: int
) -> None:
    """Renyi DP by Opacus and by dp-accounting, privacy losses by Opacus's PRV accountant."""
    first = mechanism.first_release
    numbers = (mechanism.rate, mechanism.noise_multiplier, steps)
    event = poisson_gaussian(*numbers, first)
    renyi = renyi_epsilon(mechanism, steps, DELTA)
    assert renyi == pytest.approx(opacus_rdp(*numbers, DELTA, first), rel=1e-6)
    if renyi < 100:
        assert rdp_epsilon(event, DELTA) == pytest.approx(renyi, rel=0.01)
        ours = pld_epsilon(event, DELTA)
        upper, error = opacus_prv(*numbers, DELTA, first, error=0.002), 0.002
        assert ours == pytest.approx(upper - error, rel=1e-3, abs=error)
        assert bounds_of(mechanism, steps, DELTA)[0]["pld"].epsilon == pytest.approx(ours, rel=1e-3, abs=1e-3)
        assert ours < renyi  # the tighter bound


@pytest.mark.parametrize("delta", [1e-9, 1e-5, 0.01])
@pytest.mark.parametrize(
    ("rate", "noise", "steps"),
    [
        (1.0, 0.3, 1),
        (0.1, 0.5, 40_000),
        (0.02, 1.0, 430),
        (0.02, 25.0, 430),
        (0.005, 0.7, 5000),
        (5e-4, 40, 1),
    ],
)
def test_orders_that_are_left_out_never_decide(rate: float, noise: float, steps: int, delta: float) -> None:
    event = poisson_gaussian(rate, noise, steps)
    whole = RdpAccountant(rdp.ORDERS, ADD_OR_REMOVE).compose(event)
    assert rdp_epsilon(event, delta) == whole.get_epsilon(delta)


@pytest.mark.parametrize(
    ("epsilon", "accountant", "first"),
    [(7.0, "rdp", None), (1.0, "rdp", None), (0.05, "rdp", None), (1.0, "pld", None), (0.05, "pld", None),
     (3.0, "rdp", FIRST), (3.0, "pld", FIRST)],
)  # fmt: skip
def test_calibrated_noise_spends_the_target_and_not_more(
    epsilon: float, accountant: Accountant, first: float | None
) -> None:
    rate, steps = 1024 / 55000, 430
    noise = noise_for(epsilon, DELTA, rate, steps, accountant, first)
    event = poisson_gaussian(rate, noise, steps, first)
    assert 0.99 * epsilon < {"rdp": rdp_epsilon, "pld": pld_epsilon}[accountant](event, DELTA) <= epsilon
    if first is not None:
        assert noise > 1.01 * noise_for(epsilon, DELTA, rate, steps, accountant)


@pytest.mark.parametrize(
    ("epsilon", "delta", "rate", "steps", "accountant", "said"),
    [
        (300, 1e-5, 0.02, 10, "rdp", "so loose for 10 x PoissonSampled"),
        (300, 1e-5, 0.02, 10, "pld", "so loose for 10 x PoissonSampled"),
        # delta alone covers the training, and ledgers have no bound by 'pld'
        (1e-9, 1e-3, 0.2, 5, "pld", r"epsilon 1e-09 .* 'pld' does not resolve it; allowed: accountant 'rdp'"),
        (1e-9, 1e-12, 1.0, 10_000, "rdp", r"epsilon 1e-09 .* can't be reached"),
    ],
)
def test_a_target_that_no_noise_is_for_is_refused(
    epsilon: float, delta: float, rate: float, steps: int, accountant: Accountant, said: str
) -> None:
    with pytest.raises(UserError, match=said):
        noise_for(epsilon, delta, rate, steps, accountant)


@pytest.mark.parametrize("epsilon", [1e-6, 0.1, 8.0, 300.0])
def test_eta_of_an_epsilon(epsilon: float) -> None:
    assert tan_epsilon(tan_eta(epsilon, 1e-5), 1e-5) == pytest.approx(epsilon, rel=1e-9)


@pytest.mark.parametrize(
    ("rate", "noise"), [(0.08, 3.0), (0.8, 3.0), (0.8, 0.3), (0.005, 0.1875), (0.5, 20.0), (1e-3, 0.06)]
)
def test_orders_agree_with_opacus(rate: float, noise: float) -> None:
    whole = np.array([2.0, 5.0, 63.0, 300.0])
    for divergences, orders, off in ((sampled_gaussian, ORDERS, 1e-7), (sampled_gaussian_whole, whole, 1e-9)):
        theirs = opacus.compute_rdp(q=rate, noise_multiplier=noise, steps=1, orders=orders.tolist())
        assert divergences(rate, noise, orders) == pytest.approx(theirs, rel=off)


def test_small_rates_keep_their_digits() -> None:
    """Where q is tiny a step's divergence is order / 2 q^2 (e^(1 / z^2) - 1)."""
    rate = 1e-6
    expected = ORDERS / 2 * rate**2 * np.expm1(1.0)
    assert sampled_gaussian(rate, 1.0, ORDERS[:4]) == pytest.approx(expected[:4], rel=1e-4)


@pytest.mark.parametrize(("rate", "noise"), [(0.01, 1e7), (0.5, 1e9), (1e-12, 1e9), (1e-6, 1e5)])
def test_tiny_divergences_keep_their_digits(rate: float, noise: float) -> None:
    """With much noise a step's divergence is order / 2 (q / z)^2; dp-accounting's may be negative."""
    whole = np.array([2.0, 3.0, 11.0, 46.0, 300.0])
    tiny = (rate / noise) ** 2 / 2
    assert sampled_gaussian(rate, noise, ORDERS) == pytest.approx(ORDERS * tiny, rel=1e-5)
    assert sampled_gaussian_whole(rate, noise, whole) == pytest.approx(whole * tiny, rel=1e-5)


@pytest.mark.parametrize(
    ("noise", "examples", "batch", "steps", "delta"),
    [
        (1e7, 1000, 10, 10**12, 1e-5),
        (1e7, 1000, 10, 10**12, 1e-50),
        (3e5, 10_000, 1, 10**11, 1e-12),
    ],
)
def test_steps_with_much_noise_spend_more_than_nothing(
    noise: float, examples: int, batch: int, steps: int, delta: float
) -> None:
    mechanism = spending(noise, batch, examples)
    lower = worst_epsilon(mechanism, steps, delta, 1.0)
    epsilon = renyi_epsilon(mechanism, steps, delta)
    assert 0 < lower <= epsilon


# Table 5 prints four epsilons; its column N is lost
PRINTED = (150.3, 13.7, 7.3, 7.1)
FOUND = (5001, 28_400, 48_800, 49_990)


def epsilon_of(examples: int, delta: float) -> float:
    return renyi_epsilon(spending(3.0, examples=examples), 2500, delta) or 0.0


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


@pytest.mark.parametrize("sampling", ["poisson", "fixed", "shuffled"])
@pytest.mark.parametrize("steps", [1, 50])
def test_steps_that_tell_nothing_leave_the_first_release(sampling: str, steps: int) -> None:
    """At a noise of 1e5 only the first release is left, a Gaussian whose epsilon has a closed form."""
    due = gaussian_epsilon(1 / 0.8, DELTA)
    actual, _ = bounds_of(spending(1e5, sampling=sampling, first=0.8), steps, DELTA)
    assert actual["unamplified"].epsilon == pytest.approx(due, rel=1e-3)
    if sampling == "poisson":
        assert actual["pld"].epsilon == pytest.approx(due, rel=1e-3)
    least = min(bound.epsilon for bound in actual.values() if bound.epsilon is not None)
    assert due * 0.9999 <= least
    assert spent_epsilon(spending(1e5, sampling=sampling, first=0.8), steps, DELTA) >= due * 0.9999


@pytest.mark.parametrize("sampling", ["poisson", "fixed", "shuffled"])
def test_renyi_counts_the_first_release_once(sampling: str) -> None:
    mechanism = spending(1.1, 100, 5000, sampling, first=FIRST)
    relation = ADD_OR_REMOVE if sampling == "poisson" else NeighboringRelation.REPLACE_ONE
    orders = (2.0, 5.0, 11.0, 32.0)
    whole = RdpAccountant(orders, relation).compose(mechanism.event(400)).rdp
    for order, expected in zip(orders, whole, strict=True):
        assert renyi_divergence(mechanism, 400, order) == pytest.approx(expected, rel=1e-9)


def test_a_ledger_has_it_in_its_event_and_its_approximations() -> None:
    ledger, without = (make_ledger(spending(first=first), 500, DELTA, "rdp") for first in (FIRST, None))
    assert "Gaussian(5.65685)" in ledger.event
    assert ledger.epsilon_upper > without.epsilon_upper
    # a lower bound, of the steps alone, stays one
    assert ledger.epsilon_lower == pytest.approx(without.epsilon_lower, abs=1e-3)
    assert ledger.epsilon_lower <= without.epsilon_upper
    by = {result.accountant.split(" ")[0] for result in ledger.accountants}
    assert "tan" not in by
    assert "tan" in {result.accountant.split(" ")[0] for result in without.accountants}


def test_several_trainings_release_it_as_often() -> None:
    """Two alike and one other: no fewer releases than dp-accounting's composition of all three has."""
    first, other = spending(first=FIRST), spending(5.0, first=4.0)
    epsilon, *_ = composed_epsilon([(first, 100, DELTA), (first, 100, DELTA), (other, 50, DELTA)])
    events = [first.event(100), first.event(100), other.event(50)]
    due = PLDAccountant(ADD_OR_REMOVE).compose(ComposedDpEvent(events)).get_epsilon(DELTA)
    assert epsilon == pytest.approx(due, rel=5e-3)


def test_for_neighbours_that_replace_one_it_counts_twice() -> None:
    assert spending(first=FIRST).replacing().first_release == FIRST / 2
    assert spending().replacing().first_release is None


def least(epsilon: float, examples: int, batch: int, steps: int, delta: float = 1e-5) -> float:
    return least_noise(epsilon, delta, steps, lambda noise: spending(noise, batch, examples))


@pytest.mark.parametrize(
    ("epsilon", "examples", "batch", "steps"),
    [(3.0, 60_000, 256, 4688), (0.05, 60_000, 600, 1000), (30.0, 1000, 100, 100), (1.0, 1000, 1000, 100)],
)
def test_it_is_dp_accountings_calibration(epsilon: float, examples: int, batch: int, steps: int) -> None:
    noise = least(epsilon, examples, batch, steps)
    assert noise == pytest.approx(noise_for(epsilon, 1e-5, batch / examples, steps, "pld"), rel=4e-3)
    assert NEAR * epsilon <= proven_epsilon(spending(noise, batch, examples), steps, 1e-5) <= epsilon


def test_it_takes_few_evaluations_of_the_ledgers_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also for batches of one example, of which a calibration by bisection took minutes."""
    fine = []

    def counted(spending: SampledGaussian, steps: int, delta: float, coarseness: float = 1.0) -> float:
        fine.append(coarseness == 1.0)
        return proven_epsilon(spending, steps, delta, coarseness)

    monkeypatch.setattr("dprepro.accountants.calibration.proven_epsilon", counted)
    least(1.1, 60_000, 1, 60_000)
    assert sum(fine) <= 4
    assert len(fine) <= 20


@pytest.mark.parametrize(
    ("epsilon", "said"), [(1e6, "so loose"), (1e-9, "can't be reached")], ids=["loose", "small"]
)
def test_what_no_noise_is_for_is_refused(epsilon: float, said: str) -> None:
    with pytest.raises(UserError, match=said):
        least(epsilon, 1000, 1000, 1000, 1e-12)


@pytest.mark.parametrize("drawn", get_args(Drawn))
@pytest.mark.parametrize("mean", [1.0, 1.5, 10.0, 1e4])
def test_dp_accounting_has_the_same_bound(drawn: Drawn, mean: float) -> None:
    mechanism = spending(1.0, 10, 1000)
    library = RdpAccountant(rdp.ORDERS)
    shape = {"logarithmic": 0.0, "geometric": 1.0, "poisson": inf}[drawn]
    library.compose(RepeatAndSelectDpEvent(mechanism.event(500), mean, shape))
    ours = selection_epsilon(mechanism, 500, DELTA, mean, drawn)
    assert ours == pytest.approx(library.get_epsilon(DELTA), rel=1e-3)


@pytest.mark.parametrize("drawn", get_args(Drawn))
@pytest.mark.parametrize(("noise", "steps"), [(1e7, 10**12), (1e9, 1)])
def test_much_noise_is_not_more_than_it_is(drawn: Drawn, noise: float, steps: int) -> None:
    """dp-accounting's divergence of such a step has no digits: it may be 0, or have no logarithm."""
    mechanism = spending(noise, 10, 1000)
    single = renyi_epsilon(mechanism, steps, DELTA)
    assert single is not None
    assert single <= selection_epsilon(mechanism, steps, DELTA, 1.0, drawn)
    assert single < selection_epsilon(mechanism, steps, DELTA, 10.0, drawn) < 4 * single + 0.003


def test_no_bound_is_a_line() -> None:
    fixed = spending(1e9, 10, 1000, "fixed")
    with pytest.raises(UserError, match="no bound"):
        selection_epsilon(fixed, 1, DELTA, 10.0, "geometric")


@pytest.mark.parametrize("mean", [0.5, inf, float("nan")])
def test_less_than_one_training_is_a_line(mean: float) -> None:
    with pytest.raises(UserError, match="allowed: 1 or more"):
        selection_epsilon(spending(1.0, 100, 100), 1, DELTA, mean, "geometric")
