"""How Sander et al. 2022 reckon before they account: Eqs. 3 and 4, of Poisson samples only."""

from collections.abc import Iterator

from pipeline.ledgers.accountants import library
from pipeline.privacy.accounting import classic_epsilon
from pipeline.privacy.spending import Spending
from pipeline.privacy.total_noise import WALL, signal_to_noise, tan_epsilon
from pipeline.results.schema import Opinion

CLASSIC = "a looser bound, as Sander et al. state it"
TAN = f"an approximation for noise multipliers above about {WALL:g}, and no bound"


def epsilons(spending: Spending, steps: int, delta: float, least: float) -> Iterator[Opinion]:
    """The classic conversion from Renyi DP, and the closed form of the total amount of noise."""
    if spending.sampling != "poisson":
        return
    classic = classic_epsilon(spending, steps, delta)
    yield Opinion(
        accountant=f"rdp, classic conversion ({library('dp-accounting')})", epsilon=classic, note=CLASSIC
    )
    if spending.first_release is not None:
        return  # which the total amount of noise has no place for
    eta = signal_to_noise(spending, steps)
    yield Opinion(accountant="tan (Eq. 4)", epsilon=tan_epsilon(eta, delta), note=TAN)
