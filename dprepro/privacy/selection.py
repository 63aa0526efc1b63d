"""Epsilon of releasing only the best of a random number of trainings.

A search of ten trainings spends ten times as much as one training. It spends only two or three times as much,
for any average number of trainings, under four conditions: the number of trainings is random, each training
has a random candidate, only the best training is released, without any information about other trainings, and
the score comes from other data than the training examples, or from a noisy release that is accounted for
(Liu and Talwar 2019; tightened by Papernot and Steinke 2022, Theorems 2 and 6). dp-accounting's
`RepeatAndSelectDpEvent` has the same theorems, but its divergences have no digits below 1e-15.
A search that tries all candidates of a grid, or publishes their results, does not meet the conditions.
"""

from functools import lru_cache
from math import expm1, inf, isfinite, log, log1p
from typing import Literal

import numpy as np
from dp_accounting.rdp.rdp_privacy_accountant import compute_delta, compute_epsilon
from scipy.optimize import brentq

from dprepro.errors import UserError
from dprepro.privacy.accounting import ORDERS, WHOLE_ORDERS, renyi_divergences
from dprepro.privacy.sampled_gaussian import SampledGaussian

Drawn = Literal["logarithmic", "geometric", "poisson"]  # distribution of the number of trainings
LEAST_DIVERGENCE = 1e-12  # smaller ones count as this one, because dp-accounting can't convert them to delta


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
