"""The polynomial of second order of the logistic loss of Phan et al. 2017 (Eqs. 24 and 25)."""

import math

from torch import Tensor

SECOND = 1 / 8  # phi^(2), whatever the label


def first_coefficients(targets: Tensor) -> Tensor:
    """phi^(1) = 1/2 - y of one-hot ``targets`` (..., M), the only coefficient that knows a label."""
    return 0.5 - targets


def polynomial(outputs: Tensor, first: Tensor, second: Tensor | float = SECOND) -> Tensor:
    """(B,) sums over the M outputs z of phi^(0) + phi^(1) z + phi^(2) z^2; all (B, M), phi^(0) = log 2."""
    return (math.log(2) + first * outputs + second * outputs.square()).sum(-1)
