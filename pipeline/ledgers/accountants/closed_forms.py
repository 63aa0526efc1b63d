"""Formulas of Sander et al. 2022 (Eqs. 3 and 4), for Poisson samples only."""

from collections.abc import Iterator

from dprepro.pipeline.ledgers.accountants import library
from dprepro.pipeline.results.schema import AccountantEpsilon
from dprepro.privacy.accounting import classic_epsilon
from dprepro.privacy.sampled_gaussian import SampledGaussian
from dprepro.privacy.total_noise import WALL, signal_to_noise, tan_epsilon

CLASSIC = "a looser bound, by the formula in Sander et al. 2022"
TAN = f"Sander et al. 2022; an approximation for noise multipliers above about {WALL:g}, not a bound"


def epsilons(
    spending: SampledGaussian, steps: int, delta: float, least: float
) -> Iterator[AccountantEpsilon]:
    """Epsilons by Renyi DP with the classic conversion (Eq. 3) and by the total amount of noise (Eq. 4)."""
    if spending.sampling != "poisson":
        return
    classic = classic_epsilon(spending, steps, delta)
    yield AccountantEpsilon(
        accountant=f"rdp, classic conversion ({library('dp-accounting')})", epsilon=classic, note=CLASSIC
    )
    if spending.first_release is not None:
        return  # TAN doesn't cover a first release
    eta = signal_to_noise(spending, steps)
    yield AccountantEpsilon(accountant="tan (Eq. 4)", epsilon=tan_epsilon(eta, delta), note=TAN)
