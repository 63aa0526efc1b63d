"""Noise that keeps an epsilon: against dp-accounting's calibration, and by the bound that it must keep."""

import pytest

from dprepro.accountants.calibration import NEAR, least_noise, noise_for, proven_epsilon
from dprepro.accountants.records import SampledGaussian
from dprepro.errors import UserError


def least(epsilon: float, examples: int, batch: int, steps: int, delta: float = 1e-5) -> float:
    return least_noise(
        epsilon,
        delta,
        steps,
        lambda noise: SampledGaussian(
            sampling="poisson", noise_multiplier=noise, examples=examples, batch=batch
        ),
    )


@pytest.mark.parametrize(
    ("epsilon", "examples", "batch", "steps"),
    [(3.0, 60_000, 256, 4688), (0.05, 60_000, 600, 1000), (30.0, 1000, 100, 100), (1.0, 1000, 1000, 100)],
)
def test_it_is_dp_accountings_calibration(epsilon: float, examples: int, batch: int, steps: int) -> None:
    noise = least(epsilon, examples, batch, steps)
    assert noise == pytest.approx(noise_for(epsilon, 1e-5, batch / examples, steps, "pld"), rel=4e-3)
    spending = SampledGaussian(sampling="poisson", noise_multiplier=noise, examples=examples, batch=batch)
    assert NEAR * epsilon <= proven_epsilon(spending, steps, 1e-5) <= epsilon


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
