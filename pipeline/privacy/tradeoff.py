"""Trade-off curves (Dong, Roth and Su 2022): smallest type II error of an attacker at each type I error."""

from collections.abc import Sequence
from math import log

import numpy as np

from pipeline.privacy.gaussian import Profile

# denser at small errors, which matter for attacks
ALPHAS = (
    0.0,
    *(factor * 10.0**power for power in (-4, -3, -2) for factor in (1, 1.5, 2, 3, 4, 5, 7)),
    *(percent / 100 for percent in (*range(10, 50, 4), *range(50, 101, 10))),
)
DIGITS = 6
# larger epsilons give no line above a beta of six digits
LAST_LINE = DIGITS * log(10)
LINES = 150
OVERFLOW = 700.0  # largest exponent without overflow


def tradeoff(profiles: Sequence[Profile], epsilon: float) -> tuple[tuple[float, float], ...]:
    """Lower bound on the trade-off curve of any attacker.

    Each (epsilon, delta) keeps the curve above two lines: beta >= max(0, 1 - delta - e^epsilon alpha,
    e^-epsilon (1 - delta - alpha)) (Wasserman and Zhou 2010; Dong, Roth and Su 2022, Proposition 2.5). The
    curve is convex, so straight lines between the points are above it.

    Args:
        profiles: upper bounds on one mechanism's delta, valid for both orders of neighbours.
        epsilon: largest epsilon of interest.

    Returns:
        Pairs (alpha, beta) of type I and smallest type II error, rounded down.
    """
    alphas = np.array(ALPHAS)[:, None]
    dense = np.linspace(0, min(epsilon, LAST_LINE), LINES)
    # `epsilon` itself, of any size, is for alpha 0
    epsilons = np.concatenate([dense, np.linspace(dense[-1], LAST_LINE, LINES), [epsilon]])
    deltas = np.minimum.reduce([profile(epsilons) for profile in profiles])
    falling = np.exp(-epsilons) * (1 - deltas - alphas)
    rising = 1 - deltas - np.exp(np.minimum(epsilons, OVERFLOW)) * alphas
    betas = np.maximum(np.maximum(rising, falling).max(1), 0.0)
    floored = np.floor(betas * 10**DIGITS) / 10**DIGITS
    return tuple((round(alpha, DIGITS), float(beta)) for alpha, beta in zip(ALPHAS, floored, strict=True))
