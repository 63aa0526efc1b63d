"""Upper bounds on epsilon of one training, of several trainings, and of the best of several.

A search of ten trainings spends ten times as much as one training. It spends only two or three times as much,
for any average number of trainings, under four conditions: the number of trainings is random, each training
has a random candidate, only the best training is released, without any information about other trainings, and
the score comes from other data than the training examples, or from a noisy release that is accounted for
(Liu and Talwar 2019; tightened by Papernot and Steinke 2022, Theorems 2 and 6). dp-accounting's
`RepeatAndSelectDpEvent` has the same theorems, but its divergences have no digits below 1e-15.
A search that tries all candidates of a grid, or publishes their results, does not meet the conditions.
"""

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from math import expm1, fsum, inf, isfinite, log, log1p
from operator import mul
from typing import Literal

import numpy as np
from dp_accounting import (
    ComposedDpEvent,
    DpEvent,
    GaussianDpEvent,
    PoissonSampledDpEvent,
    SampledWithoutReplacementDpEvent,
    SampledWithReplacementDpEvent,
    SelfComposedDpEvent,
)
from dp_accounting.dp_event import MixtureOfGaussiansDpEvent
from dp_accounting.rdp.rdp_privacy_accountant import compute_delta, compute_epsilon
from scipy.optimize import brentq

from dprepro.accountants.allocation import RandomAllocationDpEvent
from dprepro.accountants.gaussian import unamplified_epsilon
from dprepro.accountants.pld import (
    LARGEST_EPSILON,
    LEAST_EPSILON,
    OneStep,
    PrivacyLosses,
    composed_losses,
    losses,
)
from dprepro.accountants.rdp import ORDERS, WHOLE_ORDERS, renyi_divergences, renyi_epsilon
from dprepro.accountants.records import AccountantEpsilon, NeighboringRelation, SampledGaussian, library
from dprepro.errors import UserError

CLOSED = "closed form"
KNOWN_STEPS = "holds even if the attacker knows which steps drew an example, and how many"
SHUFFLED = "exact for an attacker who knows in which batch of each epoch an example is"
INTEGRAL = "with our integration at fractional orders, where the library has a looser bound"
ALLOCATION = "likelihood ratios of an epoch, rounded to a larger law in the convex order"
IN_BLOCKS = f"{ALLOCATION}; a bound for a known partition of each epoch's batches"
NO_RENYI_ALLOCATION = "not computed for random allocation"
NO_RENYI = "this accountant has no bound for sampling with replacement"
NO_RENYI_GROUP = "not computed for several examples of a person"
NO_RENYI_SO_SMALL = "not computed: the divergence of a step is too small or too large for this accountant"
NO_GRID = f"not computed for an epsilon above {LARGEST_EPSILON:g}, where other accountants are as tight"
NO_FINER_GRID = f"not computed below an epsilon of {LEAST_EPSILON:g}"
NO_SUCH_DELTA = "not computed: the rounding error of all steps is larger than delta"
NO_LOSSES = "not computed: the steps of an epoch are not independent"
BASIC = "the sum of each one's bound at its share of delta"
# largest epsilon of a training whose losses are composed on a grid
LARGEST_GRID = 50.0
INTERVAL = 1e-3
# factor on the grid's interval for 'allocation' and a person's examples, for a bound in a tenth of a second
COARSE_EPOCHS = 4.0
LEAST_DIVERGENCE = 1e-12  # smaller ones count as this one, because dp-accounting can't convert them to delta

Drawn = Literal["logarithmic", "geometric", "poisson"]  # distribution of the number of trainings
# spending of a training: mechanism, steps and delta, or the pure epsilon of a single release
Spending = tuple[SampledGaussian, int, float] | float


@lru_cache(maxsize=64)
def bounds_of(
    spending: SampledGaussian, steps: int, delta: float
) -> tuple[dict[str, AccountantEpsilon], PrivacyLosses | OneStep | None]:
    """Upper bounds on epsilon by name ('rdp', 'pld', 'unamplified'), and the loss distribution of 'pld'."""
    accounting = library("dp-accounting")
    renyi = renyi_epsilon(spending, steps, delta)
    plain = unamplified_epsilon(spending, steps, delta)
    bound = plain if renyi is None else min(renyi, plain)
    grid = losses(spending, steps, delta, bound)
    unamplified_bound = AccountantEpsilon(
        accountant=f"unamplified ({CLOSED})",
        epsilon=plain,
        note=SHUFFLED if spending.sampling == "shuffled" else KNOWN_STEPS,
    )
    if grid is not None:
        accounting_method = CLOSED if isinstance(grid, OneStep) else accounting
        allocation_note = ALLOCATION if spending.participations == 1 else IN_BLOCKS
        pld = AccountantEpsilon(
            accountant=f"pld ({accounting_method})",
            epsilon=grid.epsilon(delta),
            note=allocation_note if spending.sampling == "allocation" else None,
        )
    else:
        reason = NO_GRID if bound > LARGEST_EPSILON else NO_SUCH_DELTA
        reason = NO_FINER_GRID if bound < LEAST_EPSILON else reason
        reason = NO_LOSSES if spending.sampling == "shuffled" else reason
        pld = AccountantEpsilon(accountant=f"pld ({accounting})", epsilon=None, note=reason)
    note = INTEGRAL if spending.sampling == "poisson" else None
    if renyi is None:
        reasons = {"allocation": NO_RENYI_ALLOCATION, "replacement": NO_RENYI}
        note = NO_RENYI_GROUP if spending.grouped else reasons.get(spending.sampling, NO_RENYI_SO_SMALL)
    rdp = AccountantEpsilon(accountant=f"rdp ({accounting})", epsilon=renyi, note=note)
    return {"rdp": rdp, "pld": pld, "unamplified": unamplified_bound}, grid


def smallest_bound(spending: SampledGaussian, steps: int, delta: float) -> float:
    """Smallest of the upper bounds on epsilon."""
    bounds, _ = bounds_of(spending, steps, delta)
    return min(bound.epsilon for bound in bounds.values() if bound.epsilon is not None)


def spent_epsilon(spending: SampledGaussian, steps: int, delta: float) -> float:
    """Upper bound on the epsilon spent after ``steps`` steps, cheap enough to show during training."""
    renyi = renyi_epsilon(spending, steps, delta)
    plain = unamplified_epsilon(spending, steps, delta)
    if spending.sampling == "allocation" or spending.grouped:
        grid = losses(spending, steps, delta, plain, COARSE_EPOCHS)
        return plain if grid is None else min(plain, grid.epsilon(delta))
    return plain if renyi is None else min(renyi, plain)


def composed_epsilon(trainings: Sequence[Spending]) -> tuple[float, float, NeighboringRelation, str]:
    """Upper bound on epsilon of several trainings together.

    Delta is the smallest delta of a training. If neighbours replace an example in the accounting of one
    training, they do so for all (`SampledGaussian.replacing`). For trainings on noisy data they always do.

    Args:
        trainings: spending of each training.

    Returns:
        Epsilon, delta, the neighbouring relation, and the method of the bound.
    """
    pure = [training for training in trainings if isinstance(training, float)]
    noisy = [training for training in trainings if isinstance(training, tuple)]
    relation = NeighboringRelation.ADD_OR_REMOVE_ONE
    if pure or any(spending.neighbouring is not relation for spending, *_ in noisy):
        relation = NeighboringRelation.REPLACE_ONE
        noisy = [(spending.replacing(), steps, delta) for spending, steps, delta in noisy]
    delta = min((training[2] for training in noisy), default=0.0)
    epsilon, accountant = _bound(Counter((spending, steps) for spending, steps, _ in noisy), delta)
    return epsilon + fsum(pure), delta, relation, accountant


def _bound(trainings: Counter[tuple[SampledGaussian, int]], delta: float) -> tuple[float, str]:
    """Upper bound on the composed epsilon at ``delta``, and the method of the bound."""
    if not trainings:
        return 0.0, BASIC
    if any(
        training.sampling in ("shuffled", "allocation")
        or (spent_epsilon(training, steps, delta) > LARGEST_GRID < smallest_bound(training, steps, delta))
        for training, steps in trainings
    ):
        return _basic(trainings, delta), BASIC
    (first, number), *remaining = trainings.items()
    losses = composed_losses(first[0].repeated(number), number * first[1], INTERVAL)
    for training, number in remaining:
        losses = losses.compose(composed_losses(training[0].repeated(number), number * training[1], INTERVAL))
    grid_epsilon, accountant = losses.epsilon(delta), f"pld ({library('dp-accounting')})"
    # The basic bound takes long to compute. It is at least a sum of epsilons at the whole delta, of any part.
    at_least = accumulate(number * smallest_bound(*training, delta) for training, number in trainings.items())
    if any(grid_epsilon < epsilon for epsilon in at_least):
        return grid_epsilon, accountant
    basic_epsilon = _basic(trainings, delta)
    return (grid_epsilon, accountant) if grid_epsilon < basic_epsilon else (basic_epsilon, BASIC)


def _basic(trainings: Counter[tuple[SampledGaussian, int]], delta: float) -> float:
    """Sum of the trainings' epsilons, each at its share of ``delta``."""
    share = delta / trainings.total()
    return fsum(number * smallest_bound(*training, share) for training, number in trainings.items())


@lru_cache(maxsize=64)
def selection_epsilon(
    spending: SampledGaussian, steps: int, delta: float, mean: float, drawn: Drawn
) -> float:
    """Upper bound on epsilon of releasing only the best of a random number of trainings.

    Args:
        spending: mechanism of a step; if candidates differ, one that spends at least as much as each of them.
        steps: steps of each training.
        delta: delta of the guarantee.
        mean: average number of trainings, 1 or more.
        drawn: distribution of the number of trainings.

    Returns:
        An upper bound on epsilon.

    Raises:
        UserError: ``mean`` is less than one or not finite, or there is no bound, as for allocated batches.
    """
    if not 1 <= mean < inf:
        raise UserError(f"best of {mean:g}; allowed: 1 or more trainings on average")
    if spending.sampling == "allocation":
        raise UserError(
            "best of several trainings by 'allocation': no bound; allowed: poisson, fixed, shuffled"
        )
    orders = WHOLE_ORDERS if spending.sampling == "fixed" else ORDERS
    single = np.maximum(renyi_divergences(spending, steps, orders), LEAST_DIVERGENCE)
    epsilon = float(compute_epsilon(orders, _selected(np.array(orders), single, mean, drawn), delta)[0])
    if not isfinite(epsilon):
        raise UserError(
            f"best of several trainings by {spending.sampling!r} with noise multiplier "
            f"{spending.noise_multiplier:g}: no bound; allowed: less noise, or 'poisson'"
        )
    return epsilon


def _selected(orders: np.ndarray, single: np.ndarray, mean: float, drawn: Drawn) -> np.ndarray:
    """(K,) Renyi divergences of the best of ``mean`` trainings; ``single``: those of one training."""
    repeated = single + log(mean) / (orders - 1)
    if drawn == "poisson":  # Theorem 6
        deltas = [compute_delta(orders, single, log1p(1 / (order - 1)))[0] for order in orders]
        return repeated + mean * np.array(deltas)
    # Theorem 2 for truncated negative binomials of shape 1 or 0; `halting` is log(1 / gamma)
    shape, halting = 1, log(mean)
    if drawn == "logarithmic":
        shape, least = 0, 1e-9
        if expm1(least) / least < mean:
            halting = brentq(lambda t: expm1(t) / t - mean, least, 2 * log(mean)) * (1 + least)
        else:
            halting = least
    return repeated + (1 + shape) * np.min((1 - 1 / orders) * single + halting / orders)


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
    if isinstance(event, MixtureOfGaussiansDpEvent):
        mean = fsum(map(mul, event.sensitivities, event.sampling_probs))
        distances = f"sensitivities 0 to {event.sensitivities[-1]:g} of mean {mean:.6g}"
        return f"MixtureOfGaussians({event.standard_deviation:.6g}, {distances})"
    if isinstance(event, GaussianDpEvent):
        return f"Gaussian({event.noise_multiplier:.6g})"
    return repr(event)
