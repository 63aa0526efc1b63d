"""Something that is released of all examples once, before the first step: composed, by every accountant."""

import pytest
from dp_accounting import ComposedDpEvent, DpEvent, NeighboringRelation
from dp_accounting.pld import PLDAccountant

from pipeline.ledgers.composition import composed_epsilon
from pipeline.ledgers.ledger import bounds_of, make_ledger
from pipeline.privacy import accounting
from pipeline.privacy.accounting import describe, noise_for, poisson_gaussian, spent_epsilon
from pipeline.privacy.gaussian import gaussian_epsilon
from pipeline.privacy.sampled_gaussian import SampledGaussian

FIRST, STEPS, DELTA = 8 / 2**0.5, 500, 1e-5


def spending(first: float | None = FIRST, sampling: str = "poisson", noise: float = 3.0) -> SampledGaussian:
    values = {"sampling": sampling, "noise_multiplier": noise, "examples": 55_000, "batch": 4096}
    return SampledGaussian.model_validate({**values, "first_release": first})


def by_losses(event: DpEvent, relation: NeighboringRelation) -> float:
    return float(PLDAccountant(relation).compose(event).get_epsilon(DELTA))


def test_the_event_is_of_both() -> None:
    steps = "9 x PoissonSampled(0.0744727, Gaussian(3))"
    assert describe(spending(5.0).event(9)) == f"Gaussian(5), then {steps}"
    assert describe(spending(None).event(9)) == steps


def test_every_bound_is_larger_by_what_another_library_says() -> None:
    """Renyi DP and privacy losses by dp-accounting's own composition, and by Opacus's two accountants."""
    alone, _ = bounds_of(spending(None), STEPS, DELTA)
    both, _ = bounds_of(spending(), STEPS, DELTA)
    for name, bound in both.items():
        assert bound.epsilon is not None
        assert bound.epsilon > (alone[name].epsilon or 0.0) * 1.001, name
    event = poisson_gaussian(4096 / 55_000, 3.0, STEPS, FIRST)
    add_or_remove = NeighboringRelation.ADD_OR_REMOVE_ONE
    assert both["pld"].epsilon == pytest.approx(by_losses(event, add_or_remove), rel=1e-3)
    assert both["rdp"].epsilon == pytest.approx(accounting.rdp_epsilon(event, DELTA), rel=0.01)
    numbers = (4096 / 55_000, 3.0, STEPS, DELTA, FIRST)
    assert both["rdp"].epsilon == pytest.approx(accounting.opacus_rdp(*numbers), rel=0.01)
    upper, error = accounting.opacus_prv(*numbers, error=0.002)
    assert both["pld"].epsilon == pytest.approx(upper - error, rel=0.01)


@pytest.mark.parametrize("sampling", ["poisson", "fixed", "shuffled"])
@pytest.mark.parametrize("steps", [1, 50])
def test_steps_that_tell_nothing_leave_the_first_release(sampling: str, steps: int) -> None:
    """At a noise of 1e5 only the first release is left, a Gaussian whose epsilon has a closed form."""
    due = gaussian_epsilon(1 / 0.8, DELTA)
    actual, _ = bounds_of(spending(0.8, sampling, noise=1e5), steps, DELTA)
    assert actual["unamplified"].epsilon == pytest.approx(due, rel=1e-3)
    if sampling == "poisson":
        assert actual["pld"].epsilon == pytest.approx(due, rel=1e-3)
    least = min(bound.epsilon for bound in actual.values() if bound.epsilon is not None)
    assert due * 0.9999 <= least
    assert spent_epsilon(spending(0.8, sampling, noise=1e5), steps, DELTA) >= due * 0.9999


def test_a_ledger_has_it_in_its_event_and_its_approximations() -> None:
    ledger, without = (make_ledger(spending(first), STEPS, DELTA, "rdp") for first in (FIRST, None))
    assert ledger.event is not None
    assert "Gaussian(5.65685)" in ledger.event
    assert ledger.epsilon_upper is not None
    assert without.epsilon_upper is not None
    assert ledger.epsilon_upper > without.epsilon_upper
    # a lower bound, of the steps alone, stays one
    assert ledger.epsilon_lower == pytest.approx(without.epsilon_lower, abs=1e-3)
    assert ledger.epsilon_lower is not None
    assert ledger.epsilon_lower <= without.epsilon_upper
    by = {result.accountant.split(" ")[0] for result in ledger.accountants}
    assert "tan" not in by
    assert "tan" in {result.accountant.split(" ")[0] for result in without.accountants}


def test_several_trainings_release_it_as_often() -> None:
    """Two alike and one other: no fewer releases than dp-accounting's composition of all three has."""
    first, other = spending(), spending(4.0, noise=5.0)
    epsilon, *_ = composed_epsilon([(first, 100, DELTA), (first, 100, DELTA), (other, 50, DELTA)])
    events = [first.event(100), first.event(100), other.event(50)]
    due = by_losses(ComposedDpEvent(events), NeighboringRelation.ADD_OR_REMOVE_ONE)
    assert epsilon == pytest.approx(due, rel=5e-3)


def test_for_neighbours_that_replace_one_it_counts_twice() -> None:
    assert spending().replacing().first_release == FIRST / 2
    assert spending(None).replacing().first_release is None


@pytest.mark.parametrize("accountant", ["rdp", "pld"])
def test_noise_is_calibrated_to_what_is_left(accountant: accounting.Accountant) -> None:
    numbers = (3.0, DELTA, 4096 / 55_000, STEPS, accountant)
    noise, alone = noise_for(*numbers, FIRST), noise_for(*numbers)
    assert noise > alone * 1.01
    event = poisson_gaussian(4096 / 55_000, noise, STEPS, FIRST)
    epsilon = {"rdp": accounting.rdp_epsilon, "pld": accounting.pld_epsilon}[accountant]
    assert 0.99 * 3 < epsilon(event, DELTA) <= 3
