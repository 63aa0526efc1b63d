"""The logistic loss of Phan et al. 2017 (Eq. 24) and its polynomial of second order (Eq. 25)."""

import math

from torch import Tensor
from torch.nn import functional as F

SECOND = 1 / 8  # phi^(2), whatever the label


def logistic(outputs: Tensor, targets: Tensor) -> Tensor:
    """(B,) cross-entropies of M logistic outputs; ``outputs`` and one-hot ``targets`` (B, M).

    Eq. 24 has the sign of both terms wrong; this is the one that Eq. 25 approximates.
    """
    return F.binary_cross_entropy_with_logits(outputs, targets, reduction="none").sum(-1)


def first_coefficients(targets: Tensor) -> Tensor:
    """phi^(1) = 1/2 - y of one-hot ``targets`` (..., M), the only coefficient that knows a label."""
    return 0.5 - targets


def polynomial(outputs: Tensor, first: Tensor, second: Tensor | float = SECOND) -> Tensor:
    """(B,) sums over the M outputs z of phi^(0) + phi^(1) z + phi^(2) z^2; all (B, M), phi^(0) = log 2."""
    return (math.log(2) + first * outputs + second * outputs.square()).sum(-1)
