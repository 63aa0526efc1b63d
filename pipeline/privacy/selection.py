"""Epsilon of releasing only the best of a random number of trainings.

A search of ten trainings spends ten times as much as one training. It spends only two or three times as much,
for any average number of trainings, under four conditions: the number of trainings is random, each training
has a random candidate, only the best training is released, without any information about other trainings, and
the score comes from other data than the training examples, or from a noisy release that is accounted for
(Liu and Talwar 2019; tightened by Papernot and Steinke 2022, Theorems 2 and 6, as in dp-accounting).
A search that tries all candidates of a grid, or publishes their results, does not meet the conditions.
"""

from functools import lru_cache
from math import inf, isfinite
from typing import Literal

import numpy as np
from dp_accounting.rdp import compute_epsilon
from dp_accounting.rdp.rdp_privacy_accountant import _compute_rdp_repeat_and_select

from pipeline.errors import UserError
from pipeline.privacy.accounting import ORDERS, WHOLE_ORDERS, renyi_divergences
from pipeline.privacy.sampled_gaussian import SampledGaussian

# distribution of the number of trainings, and its shape as a truncated negative binomial
Drawn = Literal["logarithmic", "geometric", "poisson"]
SHAPES: dict[Drawn, float] = {"logarithmic": 0.0, "geometric": 1.0, "poisson": inf}
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
    repeated = _compute_rdp_repeat_and_select(orders, single, mean, SHAPES[drawn])
    epsilon = float(compute_epsilon(orders, repeated, delta)[0])
    if not isfinite(epsilon):
        raise UserError(
            f"best of several trainings by {spending.sampling!r} with noise multiplier "
            f"{spending.noise_multiplier:g}: no bound; allowed: less noise, or 'poisson'"
        )
    return epsilon
