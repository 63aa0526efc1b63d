"""Epsilon at delta by several accountants, and noise calibration.

* ``rdp``: Renyi DP (Mironov 2017; sampled Gaussian: Mironov et al. 2019; without replacement: Wang, Balle and
  Kasiviswanathan 2019) with the improved conversion of Balle et al. 2020 and Canonne et al. 2020, by
  dp-accounting; `dprepro.privacy.renyi` tightens its fractional orders. An upper bound, as in the papers.
  `classic_epsilon` uses Mironov's conversion, a looser bound.
* ``pld``: privacy loss distributions (Doroshenko et al. 2022), rounded pessimistically, by dp-accounting. A
  tighter upper bound.
* ``unamplified``: the attacker knows the samples (`dprepro.privacy.participation`). An upper bound at any
  noise.
* ``clt``: the central limit theorem of some papers (`dprepro.privacy.clt`). An approximation and no bound.
* ``tan``: the closed form of Sander et al. (`dprepro.privacy.total_noise`). An approximation and no bound.
* `opacus_prv` and `opacus_rdp`: Opacus's epsilons for Poisson samples, as a second library.
"""

import logging
import warnings
from collections.abc import Callable
from functools import lru_cache, partial
from itertools import pairwise
from math import inf, isfinite, log, log1p
from typing import Literal

import dp_accounting
import numpy as np
from dp_accounting import (
    ComposedDpEvent,
    DpEvent,
    GaussianDpEvent,
    NeighboringRelation,
    PoissonSampledDpEvent,
    PrivacyAccountant,
    SampledWithoutReplacementDpEvent,
    SampledWithReplacementDpEvent,
    SelfComposedDpEvent,
)
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant, compute_epsilon

from dprepro.errors import UserError
from dprepro.privacy.allocation import RandomAllocationDpEvent
from dprepro.privacy.participation import unamplified_epsilon
from dprepro.privacy.renyi import sampled_gaussian, sampled_gaussian_whole
from dprepro.privacy.sampled_gaussian import SampledGaussian
from dprepro.privacy.subsampling import LEAST_EPSILON, MOST_AT_ONCE, ROUNDING, losses

Accountant = Literal["rdp", "pld"]
RELATION = NeighboringRelation.ADD_OR_REMOVE_ONE

# dp-accounting warns about every Renyi order that it leaves out, which only loosens the bound
logging.getLogger("absl").setLevel(logging.ERROR)

# dense near 1, where large epsilons have their minimum, and large enough for epsilon .05 at delta 1e-5
ORDERS = (
    *np.arange(1.1, 5, 0.1).round(1).tolist(),
    *np.arange(5, 11, 0.5).tolist(),
    *range(11, 64),
    *np.geomspace(64, 4096, 40).round().tolist(),
)
# for samples without replacement: their bound takes long at large orders, and interpolates between whole ones
WHOLE_ORDERS = (*range(2, 64), 64, 80, 96, 128, 192, 256, 512, 1024)
LEAST_NOISE = 0.05  # below, the integral at fractional orders takes long, and sampling saves little
PARTS = (1, 64, 256, 1024, 5000)  # limits of parts of the orders; later parts are used only if needed


def poisson_gaussian(
    rate: float, noise_multiplier: float, steps: int, first_release: float | None = None
) -> DpEvent:
    """Event of ``steps`` Poisson-sampled Gaussian mechanisms, and of `SampledGaussian.first_release`."""
    sampled = SelfComposedDpEvent(PoissonSampledDpEvent(rate, GaussianDpEvent(noise_multiplier)), steps)
    return ComposedDpEvent([GaussianDpEvent(first_release), sampled]) if first_release else sampled


def rdp_epsilon(event: DpEvent, delta: float) -> float:
    """Epsilon by Renyi DP with the improved conversion; neighbours add or remove one example."""
    epsilon = inf
    for low, high in pairwise(PARTS):
        orders = [order for order in ORDERS if low <= order < high]
        accountant = RdpAccountant(orders, NeighboringRelation.ADD_OR_REMOVE_ONE).compose(event)
        epsilon = min(epsilon, float(accountant.get_epsilon(delta)))
        if _is_minimum(float(accountant.rdp[-1]), orders[-1], epsilon):
            break
    return epsilon


class _RdpByParts(PrivacyAccountant):
    """`rdp_epsilon` as an accountant, for dp-accounting's calibration."""

    def _maybe_compose(self, event: DpEvent, count: int, do_compose: bool) -> None:
        """Do nothing: `get_epsilon` uses the accountant's ledger of events."""

    def get_epsilon(self, target_delta: float) -> float:
        """Epsilon of the composed event."""
        return rdp_epsilon(self.ledger, target_delta)


def _is_minimum(divergence: float, order: float, epsilon: float) -> bool:
    """Check that no order above ``order`` can give an epsilon below ``epsilon``.

    Higher orders take longer. A divergence grows with its order. The improved conversion subtracts at most
    a gain from the divergence, and this gain falls with the order.

    Returns:
        True if no higher order gives a smaller epsilon.
    """
    gain = log(order) / (order - 1) - log1p(-1 / order)
    return isfinite(divergence) and divergence > epsilon + gain


def pld_epsilon(event: DpEvent, delta: float, interval: float = 1e-4) -> float:
    """Epsilon by privacy loss distributions.

    The largest effect of rounding on delta is subtracted from delta first.

    Args:
        event: composed mechanism.
        delta: delta of the guarantee.
        interval: interval of the grid of losses.

    Returns:
        An upper bound at any ``interval``; infinity if delta is within the rounding error.
    """
    accountant = PLDAccountant(NeighboringRelation.ADD_OR_REMOVE_ONE, value_discretization_interval=interval)
    remaining_delta = delta - ROUNDING * _compositions(event)
    return float(accountant.compose(event).get_epsilon(remaining_delta)) if remaining_delta > 0 else inf


def _compositions(event: DpEvent) -> int:
    """Number of mechanisms in an event."""
    if isinstance(event, SelfComposedDpEvent):
        return event.count * _compositions(event.event)
    return sum(map(_compositions, event.events)) if isinstance(event, ComposedDpEvent) else 1


def tightest(epsilon: float, delta: float, steps: int) -> Accountant:
    """Accountant 'pld', whose bound is smaller, if it can resolve such a guarantee; otherwise 'rdp'."""
    resolved = epsilon >= LEAST_EPSILON and steps <= MOST_AT_ONCE and delta > 2 * ROUNDING * (steps + 1)
    return "pld" if resolved else "rdp"


@lru_cache(maxsize=256)  # a call takes half a second
def opacus_rdp(
    rate: float, noise_multiplier: float, steps: int, delta: float, first_release: float | None = None
) -> float:
    """Epsilon of `poisson_gaussian` by Opacus's RDP accountant."""
    from opacus.accountants import RDPAccountant

    accountant = RDPAccountant()
    accountant.history = _history(rate, noise_multiplier, steps, first_release)
    with warnings.catch_warnings():
        # Opacus warns if the best order is the smallest, as at an epsilon of hundreds
        warnings.simplefilter("ignore")
        return float(accountant.get_epsilon(delta, alphas=list(ORDERS)))


def _history(
    rate: float, noise_multiplier: float, steps: int, first_release: float | None
) -> list[tuple[float, float, int]]:
    """(noise multiplier, rate, steps) of each mechanism, in Opacus's format."""
    first = [(first_release, 1.0, 1)] if first_release else []
    return [*first, (noise_multiplier, rate, steps)]


@lru_cache(maxsize=512)
def _renyi(spending: SampledGaussian, orders: tuple[float, ...]) -> np.ndarray:
    """Renyi divergences of one step, or of one epoch of 'shuffled', without `SampledGaussian.first_release`.

    dp-accounting's sum at whole orders loses the digits of a tiny divergence, and may be negative. Then the
    divergence is that of a sum of positive terms.

    Returns:
        (K,) divergences at the K orders; infinite where dp-accounting has no bound.
    """
    poisson = spending.sampling == "poisson"
    relation = NeighboringRelation.ADD_OR_REMOVE_ONE if poisson else NeighboringRelation.REPLACE_ONE
    all_orders, divergences = np.array(orders), np.empty(len(orders))
    integrable = poisson and spending.rate < 1 and spending.noise_multiplier >= LEAST_NOISE
    fractional = (all_orders % 1 > 0) & integrable  # slow in dp-accounting
    if fractional.any():
        divergences[fractional] = sampled_gaussian(
            spending.rate, spending.noise_multiplier, all_orders[fractional]
        )
    if not fractional.all():
        steps_alone = spending.model_copy(update={"first_release": None})
        accountant = RdpAccountant(all_orders[~fractional], relation)
        try:
            divergences[~fractional] = accountant.compose(steps_alone.event(1)).rdp
        except ValueError:  # a logarithm of 0, for samples without replacement and noise of 1e8 or more
            divergences[~fractional] = inf
    if poisson and spending.rate < 1 and (whole := all_orders % 1 == 0).any():
        exact = sampled_gaussian_whole(spending.rate, spending.noise_multiplier, all_orders[whole])
        divergences[whole] = np.maximum(divergences[whole], exact)
    return divergences


def renyi_divergence(spending: SampledGaussian, steps: int, order: float) -> float:
    """Renyi divergence of ``steps`` steps at one order; not for 'replacement' or 'allocation'."""
    return float(renyi_divergences(spending, steps, (order,))[0])


def renyi_epsilon(spending: SampledGaussian, steps: int, delta: float) -> float | None:
    """Epsilon by Renyi DP with the improved conversion; takes milliseconds; None without a bound."""
    return _converted(spending, steps, lambda *curve: float(compute_epsilon(*curve, delta)[0]))


def classic_epsilon(spending: SampledGaussian, steps: int, delta: float) -> float | None:
    """Epsilon by Renyi DP, conversion of Mironov 2017 (Sander et al. 2022, Eq. 3); None without a bound."""
    return _converted(
        spending, steps, lambda orders, divergences: float((divergences - np.log(delta) / (orders - 1)).min())
    )


def _converted(
    spending: SampledGaussian, steps: int, convert: Callable[[np.ndarray, np.ndarray], float]
) -> float | None:
    """Smallest epsilon by ``convert`` from orders and divergences of ``steps`` steps; None without bound."""
    if spending.sampling in ("replacement", "allocation"):
        return None
    orders = WHOLE_ORDERS if spending.sampling == "fixed" else ORDERS
    epsilon = inf
    # large orders take long, and are needed only for small epsilons
    for low, high in pairwise(PARTS):
        part = np.array([order for order in orders if low <= order < high])
        divergences = renyi_divergences(spending, steps, tuple(part.tolist()))
        finite = np.isfinite(divergences)
        if finite.any():
            epsilon = min(epsilon, convert(part[finite], divergences[finite]))
        if _is_minimum(divergences[-1], part[-1], epsilon):
            break
    return epsilon if isfinite(epsilon) else None


def renyi_divergences(spending: SampledGaussian, steps: int, orders: tuple[float, ...]) -> np.ndarray:
    """(K,) Renyi divergences of ``steps`` steps and of `SampledGaussian.first_release`, at K orders."""
    times = spending.epochs(steps) if spending.sampling == "shuffled" else steps
    total = _renyi(spending, orders) * times
    return total + np.array(orders) / (2 * spending.first_release**2) if spending.first_release else total


def spent_epsilon(spending: SampledGaussian, steps: int, delta: float) -> float:
    """Upper bound on the epsilon spent after ``steps`` steps, cheap enough to show during training."""
    renyi = renyi_epsilon(spending, steps, delta)
    plain = unamplified_epsilon(spending, steps, delta)
    if spending.sampling == "allocation":
        grid = losses(spending, steps, delta, plain, COARSE_EPOCHS)
        return plain if grid is None else min(plain, grid.epsilon(delta))
    return plain if renyi is None else min(renyi, plain)


@lru_cache(maxsize=256)
def opacus_prv(
    rate: float,
    noise_multiplier: float,
    steps: int,
    delta: float,
    first_release: float | None = None,
    error: float = 0.01,
) -> tuple[float, float]:
    """Epsilon of `poisson_gaussian` by Opacus's PRV accountant (Gopi et al. 2021), an upper bound.

    Returns:
        Epsilon and its error bound.

    Raises:
        ValueError: the accountant fails, for example at a large epsilon.
    """
    from opacus.accountants import PRVAccountant

    accountant = PRVAccountant()
    accountant.history = _history(rate, noise_multiplier, steps, first_release)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return float(accountant.get_epsilon(delta, eps_error=error, delta_error=delta / 1000)), error
    except (ValueError, RuntimeError, MemoryError, IndexError) as problem:
        raise ValueError(f"PRV failed: {problem}") from problem


COARSE_EPOCHS = 4.0  # factor on the grid's interval for 'allocation', for a bound in a tenth of a second
COARSE = 1e-3  # interval of a coarse grid: ten times as fast as the default one, and also an upper bound
NEAR = 0.995  # share of a target epsilon that a bound must reach


@lru_cache(maxsize=256)
def noise_for(
    epsilon: float,
    delta: float,
    rate: float,
    steps: int,
    accountant: Accountant,
    first_release: float | None = None,
) -> float:
    """Noise multiplier that keeps a `poisson_gaussian` within epsilon, near the smallest such multiplier.

    The search ends within 0.2 % of the smallest, or within 0.001 of it below 1. 'pld' searches on a coarse
    grid first. If the result's epsilon on the fine grid is below `NEAR` times the target, it searches again
    on the fine grid.

    Args:
        epsilon: target.
        delta: delta of the guarantee.
        rate: probability of Poisson sampling.
        steps: number of steps.
        accountant: accountant of the calibration.
        first_release: noise multiplier of an earlier release of all examples; None: there is none.

    Returns:
        The noise multiplier.

    Raises:
        UserError: a multiplier of 8,192 is not enough, or .2 is already enough; or 'pld' can't resolve the
            guarantee.
    """
    if accountant == "pld" and tightest(epsilon, delta, steps) != "pld":
        raise UserError(
            f"epsilon {epsilon:g} at delta {delta:g} after {steps} steps: 'pld' does not resolve it; "
            "allowed: accountant 'rdp'"
        )
    event_at = partial(poisson_gaussian, rate, steps=steps, first_release=first_release)
    if accountant == "rdp":
        return _calibrated(event_at, partial(_RdpByParts, RELATION), epsilon, delta, delta)
    remaining_delta = delta - ROUNDING * (steps + (first_release is not None))
    for interval in (COARSE, 1e-4):
        by_losses = partial(PLDAccountant, RELATION, value_discretization_interval=interval)
        multiplier = _calibrated(event_at, by_losses, epsilon, delta, remaining_delta)
        if pld_epsilon(event_at(multiplier), delta) >= NEAR * epsilon:
            break
    return multiplier


def _calibrated(
    event_at: Callable[[float], DpEvent],
    accountant: Callable[[], PrivacyAccountant],
    epsilon: float,
    delta: float,
    remaining_delta: float,
) -> float:
    """Noise multiplier of an epsilon just below ``epsilon``; ``remaining_delta``: delta minus rounding."""
    # below .2 the PLD grows very large, and such a loose target needs no calibration
    low, high = 0.2, 1.0
    while accountant().compose(event_at(high)).get_epsilon(remaining_delta) > epsilon:
        low, high = high, 2 * high
        if high > 1e4:
            raise UserError(
                f"epsilon {epsilon} at delta {delta} can't be reached by {describe(event_at(low))}"
            )
    try:
        return float(
            dp_accounting.calibrate_dp_mechanism(
                accountant,
                event_at,
                epsilon,
                remaining_delta,
                dp_accounting.ExplicitBracketInterval(low, high),
                tol=1e-3 * high,
            )
        )
    except ValueError as problem:  # no sign change: the lower end of the bracket is enough already
        raise UserError(
            f"epsilon {epsilon} at delta {delta} is so loose for {describe(event_at(low))} that its noise "
            "keeps it already; lower it, or train with epsilon .inf"
        ) from problem


def describe(event: DpEvent) -> str:
    """Description of an event in one line, in dp-accounting's terms."""
    if isinstance(event, ComposedDpEvent):
        return ", then ".join(map(describe, event.events))
    if isinstance(event, SelfComposedDpEvent):
        return f"{event.count} x {describe(event.event)}"
    if isinstance(event, PoissonSampledDpEvent):
        return f"PoissonSampled({event.sampling_probability:.6g}, {describe(event.event)})"
    if isinstance(event, SampledWithoutReplacementDpEvent | SampledWithReplacementDpEvent):
        kind = type(event).__name__.removesuffix("DpEvent")
        return f"{kind}({event.sample_size} of {event.source_dataset_size}, {describe(event.event)})"
    if isinstance(event, RandomAllocationDpEvent):
        return f"RandomAllocation({event.selected} of {event.steps} steps, {describe(event.event)})"
    if isinstance(event, GaussianDpEvent):
        return f"Gaussian({event.noise_multiplier:.6g})"
    return repr(event)
