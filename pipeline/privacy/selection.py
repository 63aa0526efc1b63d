"""Epsilon of releasing only the best of a random number of trainings.

A search of ten trainings spends ten times as much as one. If the number of trainings is random, each has a
random candidate, and only the best one is released, without any information about the others, the search
spends two or three times as much, for any average number (Liu and Talwar 2019; tightened by Papernot and
Steinke 2022, Theorems 2 and 6, as in dp-accounting). A grid whose candidates are all tried, or whose results
are published, is no such search; nor is one that is judged on the training examples themselves: the score
must come from other data, or be a noisy release that is accounted for.
"""

from functools import lru_cache
from math import inf
from typing import Literal

from dp_accounting import NeighboringRelation
from dp_accounting.dp_event import RepeatAndSelectDpEvent
from dp_accounting.rdp import RdpAccountant

from pipeline.errors import UserError
from pipeline.privacy.accounting import ORDERS, WHOLE_ORDERS
from pipeline.privacy.sampled_gaussian import SampledGaussian

# law of the number of trainings, and its shape as a truncated negative binomial
Drawn = Literal["logarithmic", "geometric", "poisson"]
SHAPES: dict[Drawn, float] = {"logarithmic": 0.0, "geometric": 1.0, "poisson": inf}


@lru_cache(maxsize=64)
def selection_epsilon(
    spending: SampledGaussian, steps: int, delta: float, mean: float, drawn: Drawn
) -> float:
    """Epsilon of the best of a random number of trainings, an upper bound at ``delta``.

    Args:
        spending: a step of each training; for different candidates, one that spends no less than any.
        steps: steps of each training.
        delta: delta of the guarantee.
        mean: average number of trainings, 1 or more.
        drawn: law of that number.

    Returns:
        An upper bound on epsilon.

    Raises:
        UserError: ``mean`` is less than one or not finite, or batches are allocated.
    """
    if not 1 <= mean < inf:
        raise UserError(f"best of {mean:g}; allowed: 1 or more trainings on average")
    if spending.sampling == "allocation":
        raise UserError(
            "best of several trainings by 'allocation': no bound; allowed: poisson, fixed, shuffled"
        )
    orders = WHOLE_ORDERS if spending.sampling == "fixed" else ORDERS
    accountant = RdpAccountant(orders, NeighboringRelation[spending.neighbouring.name])
    accountant.compose(RepeatAndSelectDpEvent(spending.event(steps), mean, SHAPES[drawn]))
    return float(accountant.get_epsilon(delta))
