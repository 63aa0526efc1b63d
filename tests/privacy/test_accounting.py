"""Every accountant against another library's: privacy losses within 0.1 %, Renyi DP within 1 %."""

import pytest
from dp_accounting import NeighboringRelation
from dp_accounting.rdp import RdpAccountant

from pipeline.errors import UserError
from pipeline.privacy import accounting
from pipeline.privacy.accounting import poisson_gaussian
from pipeline.privacy.sampled_gaussian import SampledGaussian

# (rate, z, steps, delta): Table 5's range, and a large-batch one (TAN's reference)
SETTINGS = [
    (1024 / 55000, 0.963, 430, 1e-5),
    (1024 / 55000, 1.801, 430, 1e-5),
    (256 / 55000, 0.7, 2150, 1e-5),
    (4096 / 50000, 3.0, 2500, 1e-5),
]


@pytest.mark.parametrize(("rate", "noise", "steps", "delta"), SETTINGS)
def test_rdp_agrees_with_opacus(rate: float, noise: float, steps: int, delta: float) -> None:
    ours = accounting.rdp_epsilon(poisson_gaussian(rate, noise, steps), delta)
    assert ours == pytest.approx(accounting.opacus_rdp(rate, noise, steps, delta), rel=0.01)


@pytest.mark.parametrize(("rate", "noise", "steps", "delta"), SETTINGS)
def test_pld_agrees_with_opacus_prv(rate: float, noise: float, steps: int, delta: float) -> None:
    ours = accounting.pld_epsilon(poisson_gaussian(rate, noise, steps), delta)
    other, error = accounting.opacus_prv(rate, noise, steps, delta)
    assert ours == pytest.approx(other - error, rel=1e-3)
    assert ours < accounting.rdp_epsilon(poisson_gaussian(rate, noise, steps), delta)  # the tighter bound


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
    whole = RdpAccountant(accounting.ORDERS, NeighboringRelation.ADD_OR_REMOVE_ONE).compose(event)
    assert accounting.rdp_epsilon(event, delta) == whole.get_epsilon(delta)


@pytest.mark.parametrize(
    ("epsilon", "accountant"), [(7.0, "rdp"), (1.0, "rdp"), (0.05, "rdp"), (1.0, "pld"), (0.05, "pld")]
)
def test_calibrated_noise_spends_the_target_and_not_more(
    epsilon: float, accountant: accounting.Accountant
) -> None:
    rate, steps, delta = 1024 / 55000, 430, 1e-5
    noise = accounting.noise_for(epsilon, delta, rate, steps, accountant)
    spent = getattr(accounting, f"{accountant}_epsilon")(poisson_gaussian(rate, noise, steps), delta)
    assert 0.99 * epsilon < spent <= epsilon
    # the second library agrees that the target is kept
    if accountant == "rdp":
        assert accounting.opacus_rdp(rate, noise, steps, delta) <= epsilon * 1.001
    else:
        upper, error = accounting.opacus_prv(rate, noise, steps, delta)
        assert upper - error <= epsilon * 1.01


@pytest.mark.parametrize("sampling", ["poisson", "fixed", "shuffled"])
def test_renyi_of_one_step_times_steps_is_renyi_of_all(sampling: str) -> None:
    mechanism = SampledGaussian.model_validate(
        {"sampling": sampling, "noise_multiplier": 1.1, "examples": 5000, "batch": 100}
    )
    relation = (
        NeighboringRelation.ADD_OR_REMOVE_ONE if sampling == "poisson" else NeighboringRelation.REPLACE_ONE
    )
    whole = RdpAccountant(accounting.WHOLE_ORDERS, relation).compose(mechanism.event(400)).get_epsilon(1e-5)
    assert accounting.renyi_epsilon(mechanism, 400, 1e-5) == pytest.approx(whole, rel=0.01)


def test_what_is_spent_so_far_ends_at_the_ledgers_renyi_dp() -> None:
    rate, noise, steps, delta = SETTINGS[0]
    mechanism = SampledGaussian(sampling="poisson", noise_multiplier=noise, examples=55000, batch=1024)
    assert accounting.spent_epsilon(mechanism, steps, delta) == pytest.approx(
        accounting.rdp_epsilon(poisson_gaussian(rate, noise, steps), delta), rel=1e-9
    )


@pytest.mark.parametrize("accountant", ["rdp", "pld"])
def test_a_target_too_loose_is_one_clear_line(accountant: accounting.Accountant) -> None:
    with pytest.raises(UserError, match="so loose for 10 x PoissonSampled"):
        accounting.noise_for(300, 1e-5, 0.02, 10, accountant)


def test_a_target_below_what_ledgers_tell_by_pld_is_refused() -> None:
    """Where delta alone covers a training, noise that 'pld' takes for enough was claimed to be infinite."""
    says = r"epsilon 1e-09 at delta 0\.001 after 5 steps: 'pld' does not resolve it; allowed: accountant"
    with pytest.raises(UserError, match=says):
        accounting.noise_for(1e-9, 1e-3, 0.2, 5, "pld")


def test_an_impossible_target_is_one_clear_line() -> None:
    with pytest.raises(UserError, match=r"epsilon 1e-09 .* can't be reached"):
        accounting.noise_for(1e-9, 1e-12, 1.0, 10_000, "rdp")
