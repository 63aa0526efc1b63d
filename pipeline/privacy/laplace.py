"""Laplace noise on quantities that are released once, and what that spends."""

from pipeline.strict import Count, Positive, Strict


class Laplace(Strict):
    """Independent Laplace noise on the coordinates of a quantity, added once.

    Replacing one example moves the coordinates that are listed here, each by at most ``distance``.
    """

    quantity: str  # 'relevances', 'inputs', 'labels'
    claimed: Positive  # epsilon by the method's own reckoning
    distance: Positive
    scales: tuple[Positive, ...]  # b of the noise on each coordinate that may move; its std is sqrt(2) b
    repeats: Count = 1  # coordinates that each of the scales stands for
    span: Positive  # of the exact values, for the laboratory: noise much larger than it leaves nothing


class Releases(Strict):
    """All that a training gets to see of the private data."""

    laplace: tuple[Laplace, ...]
