"""A ledger keeps the digits that are alike in every process, and rounds bounds the safe way."""

import pytest

from dprepro.accountants.attack_risk import curve_of_losses, gaussian_mu, gaussian_risk
from dprepro.accountants.pld import composed_losses
from dprepro.accountants.records import MACHINE_TOLERANCE, SampledGaussian, down, up
from dprepro.pipeline.ledgers.compared import _first_difference
from dprepro.pipeline.ledgers.ledger import make_ledger
from dprepro.pipeline.results.schema import LedgerEntry

FIXED = SampledGaussian(sampling="fixed", noise_multiplier=1.0, examples=900, batch=9)


def test_noise_in_the_last_digits_is_not_kept() -> None:
    # Opacus' PRV accountant, in two processes
    assert up(2.5168433891672035) == up(2.516843389167017) == 2.5169
    assert up(0.1 + 0.15) == 0.25
    assert up(0.0) == 0.0


@pytest.mark.parametrize("value", [2.5168433891672035, 7.3e6 + 1 / 3, 1e-4 / 3, 298.3])
def test_an_upper_bound_is_rounded_up_and_a_lower_one_down(value: float) -> None:
    assert down(value) <= value <= up(value)
    assert up(value) == pytest.approx(value, rel=MACHINE_TOLERANCE)


def test_mu_is_a_bound_from_the_stated_cut_off_on() -> None:
    """Below the exact cut-off mu is larger: 1.50108 from 1.9e-8 on, and 1.5010 from 1.92e-8 on."""
    mechanism = SampledGaussian(sampling="poisson", noise_multiplier=1.0, examples=1000, batch=100)
    ledger = make_ledger(mechanism, 100, 1e-5, None, others=())
    risk, epsilon = ledger.risk, ledger.epsilon_upper
    losses = composed_losses(mechanism, 100, 1e-4)
    assert gaussian_mu(curve_of_losses(losses), risk.least_rate) <= risk.mu
    assert risk.least_rate >= gaussian_risk(mechanism, 100, 1e-5, epsilon).least_rate


def test_what_two_machines_differ_by_is_no_contradiction() -> None:
    kept = make_ledger(FIXED, 90, 1e-5, "rdp")
    for apart, said in (
        (1 + 0.9 * MACHINE_TOLERANCE, None),
        (1 + 2 * MACHINE_TOLERANCE, "epsilon_upper"),
        (1 - 2 * MACHINE_TOLERANCE, "epsilon_upper"),
    ):
        other = kept.model_copy(update={"epsilon_upper": kept.epsilon_upper * apart})
        stored, expected = (
            LedgerEntry(level="sigma=1", seeds=(0,), ledger=ledger).model_dump() for ledger in (kept, other)
        )
        assert _first_difference(stored, expected) == (said and f"ledger.{said}")
